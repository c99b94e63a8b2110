package write_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
)

// A row of an archive whose rev is of the far future orders nothing: its account is fetched from its host, and a
// commit of the stream with an ordinary rev is not taken for a replay.
func TestArchivedFutureRev(t *testing.T) {
	store := memory(write.Limits{})
	s := open(t, store, graph.Options{Embedded: true})
	if err := s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }); err != nil {
		t.Fatal(err)
	}
	m := &seam{t, s, "did:web:future.example.com", nil, store}
	var b batch.Batch
	b.AddArchived(1, []byte(m.did), dict.AppendTID(nil, 1<<62))
	b.AddPut(1, []byte("a"), []byte("did:web:b.example.com"))
	b.Seen(1, nil)
	m.apply("archive", &b)
	b.Reset()
	rev := dict.AppendTID(nil, 1<<60)
	b.AddCommit(1, &batch.Commit{DID: []byte(m.did), Rev: rev, Data: make([]byte, 32), Since: rev})
	b.AddPut(1, []byte("c"), []byte("did:web:d.example.com"))
	m.apply("stream", &b)
	doubtful, err := s.EndArchive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := m.records(); len(got) != 1 || got[pathName(1, []byte("c"))] == "" || !slices.Equal(doubtful, []string{m.did}) {
		t.Errorf("records %v, to be fetched: %v", got, doubtful)
	}
}

// Rows and markers of an archive, as a fold in plain maps says, come to the same in one
// write, in some, and in many.
func TestArchiveInAnyWrites(t *testing.T) {
	const accounts, rows = 12, 4000
	for seed := range uint64(6) {
		most := []int{rows + 1, 1000, 60, 3, 1500, 400}[seed]
		store := memory(write.Limits{Row: 20, Chunk: 20})
		s := open(t, store, graph.Options{Embedded: true, SliceSize: 5, Queued: func([]batch.Queued) {}})
		if err := s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 8))
		want := make([]map[string]string, accounts)
		hidden := make([]bool, accounts)
		did := func(n int) string { return fmt.Sprintf("did:web:%d.example.com", n) }
		var b batch.Batch
		events := 0
		flush := func(seq format.Seq) {
			b.Seen(seq, nil)
			apply(t, s, "archive", &b)
			b.Reset()
			events = 0
		}
		account := 0
		for n := range rows {
			seq, rev := format.Seq(n+1), dict.AppendTID(nil, uint64(n+1)<<20)
			if rng.IntN(3) == 0 { // else one more of the same
				account = rng.IntN(accounts)
			}
			if want[account] == nil {
				want[account] = map[string]string{}
			}
			switch what := rng.IntN(200); {
			case what == 0:
				b.AddArchivedSync(seq, []byte(did(account)), rev)
				clear(want[account])
			case what == 1:
				b.AddArchivedAccount(seq, []byte(did(account)), false, true)
				clear(want[account])
				hidden[account] = true
			case what < 6:
				hidden[account] = rng.IntN(2) == 0
				b.AddArchivedAccount(seq, []byte(did(account)), !hidden[account], false)
			default:
				b.AddArchived(seq, []byte(did(account)), rev)
				for range 1 + rng.IntN(3) {
					rkey := string(dict.AppendTID(nil, rng.Uint64N(400)<<44))
					if rng.IntN(4) == 0 {
						b.AddDelete(1, []byte(rkey))
						delete(want[account], pathName(1, []byte(rkey)))
						continue
					}
					subject := did(rng.IntN(accounts))
					b.AddPut(1, []byte(rkey), []byte(subject))
					want[account][pathName(1, []byte(rkey))] = subject
				}
			}
			if events++; events > rng.IntN(2*most) {
				flush(seq)
			}
		}
		flush(rows)
		erase(t, s)
		for n := range accounts {
			m := &seam{t, s, did(n), nil, store}
			st, _ := m.row()
			if got := m.records(); !maps.Equal(got, want[n]) || st.Has(format.FlagHidden) != hidden[n] {
				t.Errorf("writes of %d, account %d: %v, want %v; hidden %v, want %v", most, n, got, want[n], st.Has(format.FlagHidden), hidden[n])
			}
		}
		verify(t, store)
	}
}
