package pebblekv

import (
	"sync"
	"sync/atomic"
)

// A gate is entered by calls, and is closed once. From then on it admits no call, not even one made
// from inside another, and close returns when all have left. So a call inside never waits for a close
// that waits for it.
type gate struct {
	closing chan struct{} // closed when close begins
	begun   atomic.Bool   // close has
	inside  sync.RWMutex  // read-locked by the calls inside, and locked by close for ever
}

// enter admits the caller if the gate is open, and reports whether it did. An admitted caller
// must leave.
func (g *gate) enter() bool { return !g.closed() && g.inside.TryRLock() }

func (g *gate) leave() { g.inside.RUnlock() }

func (g *gate) closed() bool { return g.begun.Load() }

// close reports whether it is the first close. The first waits until all have left.
func (g *gate) close() bool {
	if g.begun.Swap(true) {
		return false
	}
	close(g.closing)
	g.inside.Lock()
	return true
}
