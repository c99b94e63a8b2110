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
	"skein.blue/internal/sim/oracle"
)

// A row of an archive whose rev is of the far future orders nothing: its account is fetched from its host, and a
// commit of the stream with an ordinary rev is not taken for a replay.
func TestArchivedFutureRev(t *testing.T) {
	store := memory(write.Limits{})
	s := open(t, store, graph.Options{})
	must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }))
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
	must(t, err)
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
		s := open(t, store, graph.Options{SliceSize: 5, Queued: func([]batch.Queued) {}})
		must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }))
		rng := rand.New(rand.NewPCG(seed, 8))
		want := make([]map[string]string, accounts)
		hidden := make([]bool, accounts)
		did := func(n int) string { return fmt.Sprintf("did:web:%d.example.com", n) }
		var b batch.Batch
		events := 0
		flush := func() {
			apply(t, s, "archive", &b)
			b.Reset()
			events = 0
		}
		account := 0
		for n := range rows {
			seq, rev := format.Seq(n+1), dict.AppendTID(nil, uint64(n+1)<<20)
			b.Seen(seq, nil)
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
				flush()
			}
		}
		b.Seen(rows, nil)
		flush()
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

// TestArchiveProves delivers rows of an archive and events of the stream of one account, in each order given, ends the archive at
// "end", and compares whether the account is complete then and after the last event, and how many records it has.
func TestArchiveProves(t *testing.T) {
	type step struct {
		source string
		event  event
	}
	row := func(rev uint64) step { return step{"archive", archived(rev)} }
	other := func(rev uint64) step { // of a collection that is not indexed
		return step{"archive", func(b *batch.Batch, seq format.Seq) {
			b.AddArchived(seq, []byte(chained), []byte(oracle.TID(rev<<20)))
			b.Seen(seq, nil)
		}}
	}
	remove := func(rev, old uint64) step {
		return step{"archive", func(b *batch.Batch, seq format.Seq) {
			other(rev).event(b, seq)
			b.AddDelete(kindOf("follow"), []byte(oracle.TID(old<<20)))
		}}
	}
	resync := func(rev uint64) step {
		return step{"archive", func(b *batch.Batch, seq format.Seq) {
			b.AddArchivedSync(seq, []byte(chained), []byte(oracle.TID(rev<<20)))
		}}
	}
	marker := func(active, deleted bool) step {
		return step{"archive", func(b *batch.Batch, seq format.Seq) { b.AddArchivedAccount(seq, []byte(chained), active, deleted) }}
	}
	live := func(rev, since uint64) step { return step{"relay", commit(rev, since, byte(since), byte(rev))} }
	end, kill := step{source: "end"}, step{source: "kill"}
	for name, c := range map[string]struct {
		steps       []step
		ended, last bool // whether the account is complete at the end of the archive, and after the last event
		records     int
	}{
		"the stream's commit follows the archive":         {[]step{row(1), row(2), live(3, 2), end, live(4, 3)}, true, true, 4},
		"the archive comes later":                         {[]step{live(3, 2), row(1), row(2), end, live(4, 3)}, true, true, 4},
		"the archive comes around":                        {[]step{row(1), live(3, 2), row(2), end}, true, true, 3},
		"the archive overlaps the stream":                 {[]step{row(1), live(3, 2), live(4, 3), row(2), row(3), end}, true, true, 4},
		"rows come again":                                 {[]step{row(1), row(2), live(3, 2), row(1), row(2), end}, true, true, 3},
		"the last commit only deletes":                    {[]step{row(1), row(2), remove(3, 1), live(4, 3), end}, true, true, 2},
		"the last commit is of another collection":        {[]step{row(1), other(2), live(3, 2), end}, true, true, 2},
		"all commits are of other collections":            {[]step{other(1), other(2), live(3, 2), end}, true, true, 1},
		"the archive is ahead":                            {[]step{row(1), row(2), row(3), live(3, 2), end, live(4, 3)}, true, true, 4},
		"the archive is ahead of what the stream brought": {[]step{live(3, 2), row(1), row(2), row(3), row(4), end, live(4, 3)}, true, true, 4},
		"and the stream brings no more":                   {[]step{live(3, 2), row(1), row(2), row(3), row(4), end}, true, true, 3},
		"the process is killed in between":                {[]step{row(1), live(3, 2), kill, row(2), kill, end}, true, true, 3},
		"the stream was there before the archive":         {[]step{{"early", nil}, live(2, 1), live(3, 2), {"begin", nil}, row(1), row(2), row(3), end, live(4, 3)}, true, true, 4},
		"the archive begins between commits":              {[]step{{"early", nil}, live(2, 1), {"begin", nil}, live(3, 2), row(1), row(2), end}, true, true, 3},

		"the archive lost the last commit":          {[]step{row(1), live(3, 2), end}, false, false, 2},
		"it lost the last commit, and comes later":  {[]step{live(3, 2), row(1), end}, false, false, 2},
		"it lost it, and has what the stream has":   {[]step{live(3, 2), live(4, 3), row(1), row(3), row(4), end}, false, false, 3},
		"it has a commit that the stream passed by": {[]step{live(4, 2), row(1), row(2), row(3), end}, false, false, 4},
		"it lost everything":                        {[]step{live(3, 2), end}, false, false, 1},
		"it lost what the early stream brought":     {[]step{{"early", nil}, live(2, 1), {"begin", nil}, row(1), end}, false, false, 2},
		"it goes on after its end":                  {[]step{live(3, 2), row(1), end, {"begin", nil}, live(4, 3), row(3), end}, false, false, 3},
		"the loss shows later":                      {[]step{row(1), end, live(3, 2)}, true, false, 2},
		"the loss shows later, by a fork":           {[]step{row(1), row(3), end, live(4, 2)}, true, false, 3},
		"it ends with a #sync":                      {[]step{row(1), resync(2), end}, false, false, 0},
		"it ends with a #sync alone":                {[]step{other(1), resync(2), end}, false, false, 0},
		"it has the repo after a #sync":             {[]step{row(1), resync(2), row(2), end, live(3, 2)}, true, true, 2},
		"the repo after a #sync is a new one":       {[]step{row(1), resync(2), live(3, 0), end}, true, true, 1},
		"it ends with a return":                     {[]step{row(1), marker(false, true), marker(true, false), end}, false, false, 0},
		"a deletion alone voids the rev":            {[]step{other(1), marker(false, true), marker(true, false), live(3, 1), end}, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory(smallLimits)
			s := open(t, store, queues)
			begin := func(address string) {
				must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = address }))
			}
			if c.steps[0].source != "early" {
				begin("archive")
			}
			for i, step := range c.steps {
				var b batch.Batch
				switch step.source {
				case "early":
				case "begin":
					begin("archive")
				case "kill":
					s = open(t, store, queues)
				case "end":
					doubtful, err := s.EndArchive(t.Context())
					if again, _ := s.EndArchive(t.Context()); !slices.Equal(again, doubtful) {
						t.Errorf("doubtful are %v, and then %v", doubtful, again)
					}
					if st, _ := account(t, s, chained); err != nil || st.Complete() != c.ended || (len(doubtful) == 0) != c.ended {
						t.Errorf("at the end of the archive: %+v, doubtful: %v: %v", st, doubtful, err)
					}
					begin("")
				default:
					step.event(&b, format.Seq(i+1))
					apply(t, s, step.source, &b)
					erase(t, s)
				}
			}
			if st, _ := account(t, s, chained); st.Complete() != c.last {
				t.Errorf("after all: %+v", st)
			}
			if n := counts(t, s); n.Records["follow"] != int64(c.records) {
				t.Errorf("%d records, want %d", n.Records["follow"], c.records)
			}
			verify(t, store)
		})
	}
}
