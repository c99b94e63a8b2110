package graph

import (
	"context"
	"maps"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
)

// A Change is an edge that a write added or removed. An added edge may have been there before.
type Change = write.SetChange

// A ListChange names a list and an account that a write may have added to it or removed from it.
type ListChange = write.ListChange

// A Watcher receives what this process commits. Changed is called under the Store's write lock, by
// several lanes at the same time, must not call the Store, and must copy what it keeps of the slices. hidden
// are accounts that were hidden or shown, or lost records in an erasure, which lists do not show.
type Watcher interface {
	Changed(edges []Change, lists []ListChange, hidden []dict.ID)
}

// Watch makes a Watcher receive later commits.
func (s *Store) Watch(w Watcher) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.watchers = append(s.watchers, w)
}

// Unwatch ends Watch.
func (s *Store) Unwatch(w Watcher) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.watchers = slices.DeleteFunc(s.watchers, func(other Watcher) bool { return other == w })
}

// Freeze calls fn while no write runs: a View that fn takes shows exactly what the Watchers have
// received.
func (s *Store) Freeze(fn func()) {
	s.writing.Lock()
	defer s.writing.Unlock()
	fn()
}

// Hold takes a View that lasts until release is called, which must be soon: on FoundationDB a
// View lasts five seconds. It is for one goroutine at a time. Reads are charged as in
// ViewCharged.
func (s *Store) Hold(ctx context.Context, charge func(cost int) error) (sn *ask.View, release func(), err error) {
	taken, done, ended := make(chan *ask.View), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.ViewCharged(ctx, charge, func(sn *ask.View) error {
			taken <- sn
			<-done
			return nil
		})
	}()
	select {
	case sn := <-taken:
		return sn, func() {
			close(done)
			<-ended //nolint:errcheck // its reads have said what failed
		}, nil
	case err := <-ended:
		return nil, nil, err
	}
}

// notify passes the result of a write to the watchers.
func (l *lane) notify(lists []write.ListChange, sets []write.SetChange, hidden map[dict.ID]bool) {
	if len(l.store.watchers) == 0 || len(lists) == 0 && len(sets) == 0 && len(hidden) == 0 {
		return
	}
	for _, to := range l.store.watchers {
		to.Changed(sets, lists, slices.Collect(maps.Keys(hidden)))
	}
}
