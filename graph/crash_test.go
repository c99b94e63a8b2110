package graph_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A crash at every commit, before and after it: what is in the store is the
// model at the stored cursor.
func TestCrashAtEveryCommit(t *testing.T) {
	h := oracle.NewHistory(4, 12)
	var events []*oracle.Event
	for range 400 {
		events = append(events, h.Next())
	}
	boom := errors.New("crash")
	for _, settings := range []dict.Settings{dict.DefaultSettings, sharedSettings} {
		t.Run(settings.String(), func(t *testing.T) {
			events := events
			if settings.Partitions > 1 { // a commit per lane: there are more of them
				events = events[:120]
			}
			for n := 1; ; n++ {
				for _, crash := range []error{boom, errors.Join(boom, memkv.ErrAfterCommit)} {
					if done := crashAt(t, settings, events, n, crash, boom); done {
						t.Logf("%d commits, a crash before and after each", n-1)
						return
					}
				}
			}
		})
	}
}

func crashAt(t *testing.T, settings dict.Settings, events []*oracle.Event, n int, crash, boom error) (done bool) {
	store := memkv.Open(memkv.Options{Merger: merger(), OnCommit: func(i int) error {
		switch {
		case i == n:
			return crash
		case i > n: // of other lanes: the process is gone
			return boom
		}
		return nil
	}})
	err := func() error {
		s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings}, SliceSize: 3, Beat: time.Hour})
		if err != nil {
			return err
		}
		var b batch.Batch
		for i, e := range events {
			fill(&b, e)
			if i%9 != 8 && i != len(events)-1 {
				continue
			}
			if err := s.Apply(t.Context(), "relay", &b); err != nil {
				return err
			}
			if err := s.EraseSlice(t.Context()); err != nil {
				return err
			}
			b.Reset()
		}
		return s.Close(t.Context())
	}()
	if err != nil && !errors.Is(err, boom) {
		t.Fatal(err)
	}
	store = store.Reopen(memkv.Options{Merger: merger()})
	s := openAfter(t, store, settings)
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }() // ends its heartbeat: hundreds of stores are opened
	var cursor int64
	if c, ok := s.Cursor("relay"); ok {
		cursor = int64(c.Seq)
	}
	m := oracle.New()
	var b batch.Batch
	for _, e := range events {
		if e.Seq <= cursor {
			m.Apply(e)
		} else if settings.Partitions > 1 { // a lane may be ahead of the others: go on to the end
			m.Apply(e)
			fill(&b, e)
		}
	}
	if err := s.Apply(t.Context(), "relay", &b); err != nil {
		t.Fatal(err)
	}
	if !compareViews(t, views(t, s), m.Views()) {
		t.Fatalf("crash at commit %d (%v)", n, crash)
	}
	verify(t, store)
	for s.Erasing() { // what is not erased yet is in no view, but it is counted
		if err := s.EraseSlice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	compareCounts(t, s, m)
	verify(t, store)
	if t.Failed() {
		t.Fatalf("crash at commit %d (%v)", n, crash)
	}
	return err == nil
}

// A power failure at random moments, on the embedded engine: what is in the
// store afterwards is the model at the stored cursor, which is not before what
// was synced.
func TestPowerFailure(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fs := harness.NewCrashFS()
		openMem := func(fs vfs.FS) (kv.Store, *graph.Store) {
			store, err := pebblekv.Open(pebblekv.Options{Dir: "s", Create: true, FS: fs, Merger: merger(), Memory: 8 << 20, SyncInterval: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return store, openGraph(t, store)
		}
		store, s := openMem(fs)
		h := oracle.NewHistory(seed, 30)
		var events []*oracle.Event
		var b batch.Batch
		synced := int64(0)
		for range 80 {
			for range 40 {
				e := h.Next()
				events = append(events, e)
				fill(&b, e)
			}
			if err := s.Apply(t.Context(), "relay", &b); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			if rng.IntN(10) == 0 {
				if err := store.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = events[len(events)-1].Seq
			}
		}
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(seed, 4))})
		after, s2 := openMem(clone)
		var cursor int64
		if c, ok := s2.Cursor("relay"); ok {
			cursor = int64(c.Seq)
		}
		if cursor < synced {
			t.Errorf("seed %d: the cursor is %d, %d was synced", seed, cursor, synced)
		}
		m := oracle.New()
		for _, e := range events {
			if e.Seq <= cursor {
				m.Apply(e)
			}
		}
		compareViews(t, views(t, s2), m.Views())
		verify(t, after)
		for s2.Erasing() { // deletions are resumed where they were
			if err := s2.EraseSlice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		compareViews(t, views(t, s2), m.Views())
		compareCounts(t, s2, m)
		verify(t, after)
		if t.Failed() {
			t.Fatalf("seed %d, cursor %d of %d", seed, cursor, events[len(events)-1].Seq)
		}
		if err := errors.Join(after.Close(), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A replay over a deletion does not bring back what was deleted, also when the
// new repo's revs are below the old one's.
func TestReplayOverDeletion(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: merger()})
	s := openGraph(t, store)
	commit := func(seq int64, rev uint64, rkey string) *oracle.Event {
		return &oracle.Event{
			Type: oracle.CommitEvent, Seq: seq, DID: "did:plc:a", Rev: oracle.TID(rev),
			Ops: []oracle.Op{{Kind: "follow", Rkey: rkey, Subject: "did:plc:b"}},
		}
	}
	for range 2 {
		var b batch.Batch
		for _, e := range []*oracle.Event{
			commit(10, 2000, "old"),
			{Type: oracle.AccountEvent, Seq: 20, DID: "did:plc:a", Deleted: true},
			{Type: oracle.AccountEvent, Seq: 25, DID: "did:plc:a", Active: true},
			commit(30, 1000, "new"),
		} {
			fill(&b, e)
		}
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
		for s.Erasing() {
			if err := s.EraseSlice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m := oracle.New()
		m.Apply(commit(30, 1000, "new"))
		compareViews(t, views(t, s), m.Views())
		compareCounts(t, s, m)
		verify(t, store)
	}
}
