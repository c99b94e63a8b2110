package repo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrMemory means that a repo needs more memory than one repo may use.
var ErrMemory = fmt.Errorf("%w: it needs more memory than one repo may use", ErrTooLarge)

// ErrNoRoom means that the context ended while the Reader waited for memory of other
// Readers.
var ErrNoRoom = errors.New("other repos hold the memory for repos")

// Memory bounds the memory of all Readers that share it. A Reader takes memory as it
// reads, and gives it back in Release.
//
// Readers that wait for each other would wait forever. So a part of the memory, as large
// as one repo may be, is reserved for one Reader at a time. A Reader that finds no room in the
// rest waits for its turn with that part. The Reader that has the turn waits for
// nothing, so the turn always comes back.
type Memory struct {
	all, one int64         // bytes: of all Readers together, and of one
	free     atomic.Int64  // of the shared part; below 0 for a moment while Readers find no room
	turn     chan struct{} // full while a Reader has the turn
}

// NewMemory returns a Memory of that many bytes. One repo may use three quarters of it. In
// addition each Reader has 256 KiB, which is enough for most repos.
func NewMemory(bytes int64) *Memory {
	one := bytes / 4 * 3
	m := &Memory{all: bytes, one: one, turn: make(chan struct{}, 1)}
	m.free.Store(bytes - one)
	return m
}

// One returns how many bytes one repo may use.
func (m *Memory) One() int64 { return m.one }

// lease is the share of a Memory that a Reader holds.
type lease struct {
	shared, own int64
	hasTurn     bool
}

// take takes n more bytes, and waits until there is room.
func (m *Memory) take(ctx context.Context, l *lease, n int64) error {
	if l.shared+l.own+n > m.one {
		return ErrMemory
	}
	if !l.hasTurn {
		if m.free.Add(-n) >= 0 {
			l.shared += n
			return nil
		}
		m.free.Add(n)
		select {
		case m.turn <- struct{}{}:
			l.hasTurn = true
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoRoom, ctx.Err())
		}
	}
	l.own += n
	return nil
}

// give gives back everything that a lease holds.
func (m *Memory) give(l *lease) {
	m.free.Add(l.shared)
	if l.hasTurn {
		<-m.turn
	}
	*l = lease{}
}
