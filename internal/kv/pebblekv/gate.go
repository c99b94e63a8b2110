package pebblekv

import "sync"

// A gate counts who is inside, and is closed once: nobody enters any more, also not who
// is inside already, and close returns when all have left. So who is inside never waits for
// a close that waits for them.
type gate struct {
	closing chan struct{} // closed when close begins
	empty   chan struct{} // closed when all have left since

	mu     sync.Mutex // guards the fields below
	inside int
}

func newGate() gate { return gate{closing: make(chan struct{}), empty: make(chan struct{})} }

// enter reports whether the gate is open.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed() {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.closed() {
		close(g.empty)
	}
}

func (g *gate) closed() bool {
	select {
	case <-g.closing:
		return true
	default:
		return false
	}
}

// close reports whether it was the first, and if so waits until all have left.
func (g *gate) close() bool {
	g.mu.Lock()
	if g.closed() {
		g.mu.Unlock()
		return false
	}
	close(g.closing)
	if g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	<-g.empty
	return true
}
