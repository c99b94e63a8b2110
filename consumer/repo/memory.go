package repo

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
// as one repo may be, is reserved for one Reader at a time. A Reader that finds no room
// waits for room, or for its turn with that part. The Reader that has the turn waits for
// nothing, so room or the turn always comes back.
type Memory struct {
	all, one int64         // bytes: of all Readers together, and of one
	turn     chan struct{} // full while a Reader has the turn

	mu   sync.Mutex    // guards the fields below
	free int64         // of the shared part
	room chan struct{} // closed when some of the shared part comes back
}

// NewMemory returns a Memory of that many bytes. One repo may use three quarters of it. In
// addition each Reader has 256 KiB, which is enough for most repos.
func NewMemory(bytes int64) *Memory {
	one := bytes / 4 * 3
	return &Memory{all: bytes, one: one, free: bytes - one, turn: make(chan struct{}, 1), room: make(chan struct{})}
}

// One returns how many bytes one repo may use.
func (m *Memory) One() int64 { return m.one }

// InUse returns how many bytes Readers hold now.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.all - m.one - m.free
	if len(m.turn) > 0 {
		n += m.one
	}
	return n
}

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
	for !l.hasTurn {
		m.mu.Lock()
		room := m.room
		if n <= m.free {
			m.free -= n
			l.shared += n
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		select {
		case m.turn <- struct{}{}:
			l.hasTurn = true
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoRoom, ctx.Err())
		}
	}
	l.own += n
	return nil
}

// give gives back everything that a lease holds.
func (m *Memory) give(l *lease) {
	if l.shared > 0 {
		m.mu.Lock()
		m.free += l.shared
		close(m.room)
		m.room = make(chan struct{})
		m.mu.Unlock()
	}
	if l.hasTurn {
		<-m.turn
	}
	*l = lease{}
}
