package graph

import (
	"context"
	"maps"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
)

// A Change is an edge that a write added or removed. An added edge may have been there before.
type Change struct {
	Kind           kinds.Kind // the kind of edge
	Actor, Subject dict.ID    // from and to
}

// A ListChange names a list and an account that a write may have added to it or removed from it.
type ListChange = write.ListChange

// A Watcher receives what this process commits. Changed is called under the Store's write lock,
// must not call the Store, and must copy what it keeps of the slices.
type Watcher interface {
	Changed(edges []Change, lists []ListChange, hidden []dict.ID)
}

// Watch sets the Watcher that receives later commits; nil ends that.
func (s *Store) Watch(w Watcher) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.watcher = w
}

// Freeze calls fn while no write runs: a View that fn takes shows exactly what the Watcher has
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
			if err := <-ended; err != nil {
				s.o.Logger.Debug("held view failed", "error", err)
			}
		}, nil
	case err := <-ended:
		return nil, nil, err
	}
}

// notify passes the result of a write to the watcher.
func (l *lane) notify(lists []write.ListChange, sets []write.SetChange, hidden map[dict.ID]bool) {
	to := l.store.watcher
	if to == nil || len(lists) == 0 && len(sets) == 0 && len(hidden) == 0 {
		return
	}
	l.changes = l.changes[:0]
	for i := range sets {
		c := &sets[i]
		l.changes = append(l.changes, Change{c.Kind, c.Member, c.Subject})
	}
	to.Changed(l.changes, lists, slices.Collect(maps.Keys(hidden)))
}
