package clients

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
)

// A Pool divides units of one thing among clients: connections, bytes of forms, subscriptions. While there is room, a
// client gets what it asks for. At the limit, it takes from the client that holds the most, unless it would then hold as much
// itself. So no client needs a cap of its own, few addresses cannot keep all others out, and a client
// that holds little keeps it.
//
// Addresses are cheap: a household has a network of 2^64 of them, a customer often 256 or 65,536 such networks. So a Pool
// divides among large networks first (/48, or /24 of IPv4), then among the networks within one (/56), then among clients
// (max-min fairness in a hierarchy, as in Bennett and Zhang, "Hierarchical Packet Fair Queueing Algorithms", 1996).
type Pool struct {
	most int64

	mu   sync.Mutex // guards all holds, and the fields below
	root node
	seq  uint64
}

// node has the holds of a network, or of a client.
type node struct {
	held  int64
	idle  int // holds
	below map[string]*node
	holds []*Hold // of a client
}

// A Hold is what a client holds of a Pool for one purpose.
type Hold struct {
	pool *Pool
	path []string // from the root to the client
	n    int64
	seq  uint64
	idle bool
	end  func()
	gone bool
}

// NewPool returns a Pool of a number of units.
func NewPool(most int64) *Pool { return &Pool{most: most} }

// Take takes n units, at least one, for a client. If the Pool later needs them for another client, it calls end, once, on another
// goroutine: whatever the units stand for must then end, and its Hold counts no more. ok is false if there is no
// room: then the client holds as much as any.
func (p *Pool) Take(client string, n int64, end func()) (h *Hold, ok bool) {
	h = &Hold{pool: p, path: pathOf(client), end: end}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	h.seq = p.seq
	if !p.grow(h, n) {
		return nil, false
	}
	return h, true
}

// Add takes n more units. ok is false if there is no room, or the Hold was taken.
func (h *Hold) Add(n int64) (ok bool) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	return !h.gone && h.pool.grow(h, n)
}

// SetIdle notes whether nothing is being done for the Hold, such as for a connection without a request. Anybody may
// take idle holds at the limit, those of the largest client first.
func (h *Hold) SetIdle(idle bool) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.gone || h.idle == idle {
		return
	}
	h.pool.seq++
	h.idle, h.seq = idle, h.pool.seq
	more := -1
	if idle {
		more = 1
	}
	h.pool.add(h, 0, more)
}

// Give gives the units back. It may be called more than once.
func (h *Hold) Give() {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if !h.gone {
		h.pool.remove(h)
	}
}

// grow gives a hold n more units, and takes them from others if it must. It is called with mu held.
func (p *Pool) grow(h *Hold, n int64) bool {
	for p.root.held+n > p.most {
		victim := p.idleHold()
		if victim == nil || victim == h {
			victim = p.victim(h, n)
		}
		if victim == nil {
			return false
		}
		p.remove(victim)
		go victim.end()
	}
	leaf := p.add(h, n, 0)
	if h.n == 0 {
		leaf.holds = append(leaf.holds, h)
	}
	h.n += n
	return true
}

// remove ends a hold. It is called with mu held.
func (p *Pool) remove(h *Hold) {
	h.gone = true
	idle := 0
	if h.idle {
		idle = -1
	}
	leaf := p.add(h, -h.n, idle)
	leaf.holds = slices.DeleteFunc(leaf.holds, func(other *Hold) bool { return other == h })
	at := &p.root
	for _, name := range h.path {
		next := at.below[name]
		if next.held == 0 {
			delete(at.below, name)
			return
		}
		at = next
	}
}

// add adds units, and idle holds, to a hold's client and its networks, and returns the client's node.
func (p *Pool) add(h *Hold, n int64, idle int) *node {
	at := &p.root
	at.held += n
	at.idle += idle
	for _, name := range h.path {
		next := at.below[name]
		if next == nil {
			if next = new(node); at.below == nil {
				at.below = map[string]*node{}
			}
			at.below[name] = next
		}
		at = next
		at.held += n
		at.idle += idle
	}
	return at
}

// victim returns the newest hold of the client from which another takes n units, nil if there is none: of the largest network the
// largest client. The first network that both do not share decides whether the newcomer would hold as much.
func (p *Pool) victim(h *Hold, n int64) *Hold {
	at, shared := &p.root, true
	for depth := 0; len(at.below) > 0; depth++ {
		name, largest := at.largest(func(*node) bool { return true })
		if shared && (depth >= len(h.path) || h.path[depth] != name) {
			own := int64(0)
			if depth < len(h.path) && at.below[h.path[depth]] != nil {
				own = at.below[h.path[depth]].held
			}
			if largest.held <= own+n {
				return nil
			}
			shared = false
		}
		at = largest
	}
	if shared { // it is the largest itself
		return nil
	}
	return slices.MaxFunc(at.holds, func(x, y *Hold) int { return cmp.Compare(x.seq, y.seq) })
}

// idleHold returns the hold that has been idle the longest, of the largest client with idle ones in the largest network with idle ones;
// nil if none is idle.
func (p *Pool) idleHold() (found *Hold) {
	at := &p.root
	for len(at.below) > 0 {
		if _, at = at.largest(func(n *node) bool { return n.idle > 0 }); at == nil {
			return nil
		}
	}
	for _, h := range at.holds {
		if h.idle && (found == nil || h.seq < found.seq) {
			found = h
		}
	}
	return found
}

// largest returns the part of a network that holds the most, of those that are wanted.
func (n *node) largest(wanted func(*node) bool) (name string, largest *node) {
	for other, next := range n.below {
		if wanted(next) && (largest == nil || next.held > largest.held || next.held == largest.held && other < name) {
			largest, name = next, other
		}
	}
	return name, largest
}

// Held returns the units that are held.
func (p *Pool) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.root.held
}

// pathOf returns the networks that a client belongs to, the largest first, and the client.
func pathOf(client string) []string {
	prefix, err := netip.ParsePrefix(client)
	if err != nil {
		return []string{client}
	}
	widths := []int{24}
	if prefix.Addr().Is6() {
		widths = []int{48, 56}
	}
	var path []string
	for _, bits := range widths {
		if wide, err := prefix.Addr().Prefix(bits); err == nil && bits < prefix.Bits() {
			path = append(path, wide.String())
		}
	}
	return append(path, client)
}

type connectionKey struct{}

// WithConnection returns a context of a connection that has the Hold.
func (h *Hold) WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, connectionKey{}, h)
}

// SetConnectionIdle notes whether the request of ctx is still being received: then its connection is as idle as one
// without a request.
func SetConnectionIdle(ctx context.Context, idle bool) {
	if h, ok := ctx.Value(connectionKey{}).(*Hold); ok {
		h.SetIdle(idle)
	}
}

// NetworkOf returns the largest network of a client that a Pool divides among (pathOf).
func NetworkOf(client string) string { return pathOf(client)[0] }
