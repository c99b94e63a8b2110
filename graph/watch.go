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

// A Change is an edge that a write has added or removed, or added where it was already.
type Change struct {
	Kind           kinds.Kind
	Actor, Subject dict.ID
}

// A Watcher hears what is committed by this process. It is called while nothing else is
// written, and must not call the Store. The slices are valid only during the call.
type Watcher interface {
	Changed(edges []Change, lists []write.ListChange, hidden []dict.ID)
}

// Watch has a Watcher told of what is committed from now on, nil to end it.
func (s *Store) Watch(w Watcher) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.watcher = w
}

// Freeze calls fn while nothing is written: what a Watcher has heard until then is what a
// Snapshot shows that fn takes.
func (s *Store) Freeze(fn func()) {
	s.writing.Lock()
	defer s.writing.Unlock()
	fn()
}

// Hold takes a Snapshot that lasts until release is called. It is for one goroutine at a
// time, and not for long: on FoundationDB five seconds. What is read of it is charged as
// ViewCharged does.
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
				s.o.Logger.Debug("a state of the store was let go", "error", err)
			}
		}, nil
	case err := <-ended:
		return nil, nil, err
	}
}

// tell tells the watcher what a write came to.
func (l *lane) tell(lists []write.ListChange, sets []write.SetChange, hidden map[dict.ID]bool) {
	to := l.store.watcher
	if to == nil || len(lists) == 0 && len(sets) == 0 && len(hidden) == 0 {
		return
	}
	l.told = l.told[:0]
	for i := range sets {
		c := &sets[i]
		l.told = append(l.told, Change{c.Kind, c.Member, c.Subject})
	}
	to.Changed(l.told, lists, slices.Collect(maps.Keys(hidden)))
}
