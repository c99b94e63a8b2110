package repo

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrMemory is returned by Read for a repo of which more would have to be kept than
// Memory allows for one repo.
var ErrMemory = fmt.Errorf("%w: what has to be kept of it does not fit into the memory for repos", ErrTooLarge)

// ErrNoRoom is returned by Read where the context ended while the Reader waited for memory
// that other Readers held.
var ErrNoRoom = errors.New("other repos hold the memory for repos")

// Memory bounds what all Readers that share it keep at one time. A Reader takes what it
// needs as it reads, and gives it back in Release.
//
// Readers that wait for each other would wait forever. So a part of the memory is set
// aside for one Reader at a time: a Reader that finds no room waits for room, or for its
// turn with that part, which is as large as one repo may be. Whoever has the turn waits
// for nobody, so room or the turn always comes back.
type Memory struct {
	all, one int64         // bytes: of all Readers together, and of one
	turn     chan struct{} // full while a Reader has the turn

	mu   sync.Mutex
	free int64         // of the part that all share
	room chan struct{} // closed when some of that part comes back
}

// NewMemory returns a Memory of so many bytes. One repo may take three quarters of it.
// Besides it each Reader has 256 KiB, in which most repos fit.
func NewMemory(bytes int64) *Memory {
	one := bytes / 4 * 3
	return &Memory{all: bytes, one: one, free: bytes - one, turn: make(chan struct{}, 1), room: make(chan struct{})}
}

// One returns how much of one repo may be kept, in bytes.
func (m *Memory) One() int64 { return m.one }

// InUse returns how much Readers hold now, in bytes.
func (m *Memory) InUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.all - m.one - m.free
	if len(m.turn) > 0 {
		n += m.one
	}
	return n
}

// lease is what a Reader has taken of a Memory.
type lease struct {
	shared, own int64
	hasTurn     bool
}

// take takes n more bytes. It waits until there is room.
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

// give gives back all that a lease holds.
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
