package graph_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// apply applies events as batches of one source.
func apply(t *testing.T, s *graph.Store, source string, events []*oracle.Event) {
	t.Helper()
	var b batch.Batch
	for i, e := range events {
		fill(&b, e)
		if i%50 == 49 || i == len(events)-1 {
			must(t, s.Apply(t.Context(), source, &b))
			b.Reset()
		}
	}
	eraseAll(t, s)
}

// What another source tells that was applied already changes nothing: the relay
// after the PDS, in another order across repos and under numbers of its own. No
// repo is desynchronized by a #sync that is older than what is known of it.
func TestOtherSource(t *testing.T) {
	for seed := range uint64(6) {
		for _, settings := range []dict.Settings{dict.DefaultSettings, sharedSettings} {
			store := memkv.Open(memkv.Options{Merger: merger()})
			s := openWriter(t, store, settings, false)
			h, m := oracle.NewHistory(seed, 15), oracle.New()
			var events []*oracle.Event
			for range 1500 {
				e := h.Next()
				// An #account of another source looks like a new one. The result is right because the
				// stream ends with the same one.
				m.Apply(e)
				events = append(events, e)
			}
			apply(t, s, "pds", events)
			compareCounts(t, s, m)
			var again []*oracle.Event // by repo, not by time
			for _, did := range h.Accounts() {
				for _, e := range events {
					if e.DID == did {
						copied := *e
						copied.Seq = int64(len(again) + 1)
						again = append(again, &copied)
					}
				}
			}
			apply(t, s, "relay", again)
			if !compareViews(t, views(t, s), m.Views()) {
				t.Fatalf("seed %d", seed)
			}
			compareCounts(t, s, m)
			verify(t, store)
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, settings)
			}
		}
	}
}

// A source that is listened to live and has told nothing yet has no cursor, and
// what is known of it goes over into one with the first event.
func TestLiveSource(t *testing.T) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, sharedSettings} {
		store := memkv.Open(memkv.Options{Merger: merger()})
		s := openWriter(t, store, settings, false)
		now := time.UnixMicro(1_700_000_000_000_000).UTC()
		must(t, s.SetLive(t.Context(), "relay", now, nil))
		look := func(s *graph.Store, cursor format.Seq, live bool) {
			t.Helper()
			c, ok := s.Cursor("relay")
			since, listening := s.LiveSince("relay")
			if ok != (cursor > 0) || c.Seq != cursor || listening != live || live && !since.Equal(now) || len(s.Cursors()) != map[bool]int{true: 1}[ok] {
				t.Errorf("cursor %+v %v, live %v since %v", c, ok, listening, since)
			}
			must(t, s.View(t.Context(), func(sn *ask.View) error {
				all, err := sn.Cursors()
				if len(all) != len(s.Cursors()) {
					t.Errorf("a question sees %+v", all)
				}
				return err
			}))
		}
		look(s, 0, true)
		must(t, s.SetFuture(t.Context(), "relay"))
		must(t, s.Close(t.Context()))
		s = openWriter(t, store, settings, false)
		look(s, 0, true)
		apply(t, s, "relay", []*oracle.Event{{Type: oracle.AccountEvent, Seq: 1000, DID: "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", Active: true}})
		look(s, 1000, false)
		must(t, s.Close(t.Context()))
		s = openWriter(t, store, settings, false)
		look(s, 1000, false)
		verify(t, store)
	}
}

// If a process takes over partitions that no event of a source was applied to, beside others, the source begins at 0 again; the others drop
// what they have. Its cursor is in the future if it is for any partition.
func TestPartitionsWithoutCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memkv.Open(memkv.Options{Merger: merger()})
		one, two := openWriter(t, store, sharedSettings, true), openWriter(t, store, sharedSettings, true)
		graph.Settle(t, one, two)
		event := func(seq int64) (all []*oracle.Event) {
			for i := range 200 {
				all = append(all, &oracle.Event{Type: oracle.AccountEvent, Seq: seq, DID: fmt.Sprintf("did:plc:a%d", i), Active: true})
				seq++
			}
			return all
		}
		apply(t, one, "relay", event(1000))
		owned, _ := one.Events()
		closed(t, two)
		graph.Settle(t, one)
		if c, ok := one.Cursor("relay"); !ok || c.Seq != 0 || len(one.Cursors()) != 1 {
			t.Errorf("%+v, %t", c, ok)
		}
		apply(t, one, "relay", event(800))
		apply(t, one, "relay", event(1000))
		if c, ok := one.Cursor("relay"); !ok || c.Seq != 1199 {
			t.Errorf("%+v, %t", c, ok)
		}
		if applied, replays := one.Events(); owned == 0 || applied != owned+2*(200-owned) || replays != 2*owned {
			t.Errorf("%d events, and %d again", applied, replays)
		}
		two = openWriter(t, store, sharedSettings, true)
		graph.Settle(t, one, two)
		must(t, two.SetFuture(t.Context(), "relay"))
		apply(t, one, "relay", event(1300))
		closed(t, one)
		graph.Settle(t, two)
		if c, ok := two.Cursor("relay"); !ok || !c.Future {
			t.Errorf("%+v, %t", c, ok)
		}
		closed(t, two)
		verify(t, store)
	})
}

// reads counts the look-ups of accounts in transactions.
type reads struct {
	kv.Store
	accounts int
}

func (r *reads) Update(ctx context.Context, fn func(kv.Txn) error) error {
	return r.Store.Update(ctx, func(tx kv.Txn) error { return fn(&readsTxn{tx, r}) })
}

type readsTxn struct {
	kv.Txn
	r *reads
}

func (x *readsTxn) Get(key []byte) ([]byte, bool, error) {
	if strings.HasPrefix(string(key), "a") {
		x.r.accounts++
	}
	return x.Txn.Get(key)
}

// An account that is deleted and returns again and again is not read each time: a read folds all
// merges since the last one, so the cost would be quadratic.
func TestToggledAccount(t *testing.T) {
	store := &reads{Store: memkv.Open(memkv.Options{Merger: merger()})}
	s, err := graph.Open(t.Context(), store, graph.Options{})
	must(t, err)
	const did, toggles = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 1000
	m := oracle.New()
	var events []*oracle.Event
	for i := range int64(toggles) {
		events = append(events,
			&oracle.Event{Type: oracle.CommitEvent, Seq: 3*i + 1, DID: did, Rev: oracle.TID(uint64(i+1) << 20), Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: did}}},
			&oracle.Event{Type: oracle.AccountEvent, Seq: 3*i + 2, DID: did, Deleted: true},
			&oracle.Event{Type: oracle.AccountEvent, Seq: 3*i + 3, DID: did, Active: true})
	}
	for _, e := range events {
		m.Apply(e)
	}
	apply(t, s, "relay", events)
	compareViews(t, views(t, s), m.Views())
	compareCounts(t, s, m)
	verify(t, store)
	if store.accounts > 10 {
		t.Errorf("the account was read %d times in %d toggles", store.accounts, toggles)
	}
}

// If a relay reuses numbers, events from before the hole come again under new ones: the status in them is not newer than the hole. If its
// sequence begins again at 1, all are.
func TestReusedNumbers(t *testing.T) {
	for _, reuses := range []bool{true, false} {
		s, did := openGraph(t, memkv.Open(memkv.Options{Merger: merger()})), "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
		for i, seq := range []int64{100, 100, 101} {
			if i == 1 && !reuses {
				must(t, s.SetFuture(t.Context(), "relay"))
			}
			if i == 1 {
				must(t, s.Rewind(t.Context(), "relay", 50, reuses, &format.Gap{After: 100, Suspect: true}))
			}
			apply(t, s, "relay", []*oracle.Event{{Type: oracle.AccountEvent, Seq: seq, DID: did, Active: true}})
			var b batch.Batch
			b.AddStatus([]byte(did), false)
			must(t, s.Apply(t.Context(), "", &b))
			var n format.Counts
			must(t, s.View(t.Context(), func(v *ask.View) (err error) { n, err = v.Counts(); return err }))
			if isHidden := n.Hidden > 0; isHidden != (reuses && i == 1) {
				t.Errorf("reused %v, %d: listed as inactive after event %d: %+v", reuses, i, seq, n)
			}
		}
	}
}

// Notes are bounded whichever source they come from, and the newest stay, also after a restart.
func TestNotesAreBounded(t *testing.T) {
	const most = 10_000
	store := memkv.Open(memkv.Options{Merger: merger()})
	begun, seq := time.Now().UTC(), format.Seq(0)
	for source, n := range []int{3000, 60_000, 25_000} {
		s := openGraph(t, store)
		for range n / batch.MaxNotes {
			var b batch.Batch
			for range batch.MaxNotes {
				seq++
				b.AddDeadLetter(format.DeadLetter{Seq: seq, Reason: "frame", Time: begun.Add(time.Duration(seq) * time.Millisecond)})
			}
			b.Seen(seq, nil)
			must(t, s.Apply(t.Context(), fmt.Sprint("source", source), &b))
		}
		must(t, s.Close(t.Context()))
		var seqs []format.Seq
		must(t, store.View(t.Context(), func(r kv.Reader) error {
			letters, err := read.DeadLetters(r)
			for _, d := range letters {
				seqs = append(seqs, d.Seq)
			}
			return err
		}))
		if slices.Sort(seqs); len(seqs) > 2*most+batch.MaxNotes || seq-seqs[0] != format.Seq(len(seqs)-1) || len(seqs) < min(most, int(seq)) {
			t.Errorf("%d notes are kept, from %d to %d of %d", len(seqs), seqs[0], seqs[len(seqs)-1], seq)
		}
	}
}
