package graph_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A crash at every commit, before and after it: what is in the store is the
// model at the stored cursor.
func TestCrashAtEveryCommit(t *testing.T) {
	h := oracle.NewHistory(4, 12)
	var events []*oracle.Event
	for range 160 {
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
					done := false
					synctest.Test(t, func(t *testing.T) { done = crashAt(t, settings, events, n, crash, boom) })
					if done {
						t.Logf("%d commits, a crash before and after each", n-1)
						return
					}
				}
			}
		})
	}
}

// crashAt is called in a bubble: the dead writer's claim is watched in no time.
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
		defer func() { _ = s.Close(t.Context()) }() // ends its heartbeat
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
	s := openWriter(t, store, settings, false)
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
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
	must(t, s.Apply(t.Context(), "relay", &b))
	if !compareViews(t, views(t, s), m.Views()) {
		t.Fatalf("crash at commit %d (%v)", n, crash)
	}
	verify(t, store)
	eraseAll(t, s) // what is not erased yet is in no view, but it is counted
	compareCounts(t, s, m)
	verify(t, store)
	if t.Failed() {
		t.Fatalf("crash at commit %d (%v)", n, crash)
	}
	return err == nil
}
