package pebblekv

import "sync"

// A gate counts the calls inside, and is closed once. From then on it admits no call, not even
// one made from inside another, and close returns when all have left. So a call inside never
// waits for a close that waits for it.
type gate struct {
	closing chan struct{} // closed when close begins
	empty   chan struct{} // closed when closing is closed and nobody is inside

	mu     sync.Mutex // guards the fields below
	inside int
}

func newGate() gate { return gate{closing: make(chan struct{}), empty: make(chan struct{})} }

// enter admits the caller if the gate is open, and reports whether it did. An admitted caller
// must leave.
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

// close reports whether it is the first close. The first waits until all have left.
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
