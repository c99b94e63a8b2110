package clients

import (
	"cmp"
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

	mu     sync.Mutex // guards all holds and shares, and the fields below
	held   int64
	shares map[string]*share // by network and by client
	holds  []*Hold
	seq    uint64
}

// share is what a network, or a client, holds.
type share struct {
	name string
	held int64
	of   int // how many holds
}

// A Hold is what a client holds of a Pool for one purpose.
type Hold struct {
	pool *Pool
	path []*share // from the largest network to the client
	n    int64
	seq  uint64 // of when it was taken, or became idle or busy
	idle bool
	end  func()
	gone bool
}

// NewPool returns a Pool of a number of units.
func NewPool(most int64) *Pool {
	return &Pool{most: most, shares: map[string]*share{}}
}

// Take takes n units, at least one, for a client. If the Pool later needs them for another client, it calls end, once, on another
// goroutine: whatever the units stand for must then end, and its Hold counts no more. ok is false if there is no
// room: then the client holds as much as any.
func (p *Pool) Take(client string, n int64, end func()) (h *Hold, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	h = &Hold{pool: p, seq: p.seq, end: end}
	for _, name := range pathOf(client) {
		s := p.shares[name]
		if s == nil {
			s = &share{name: name}
			p.shares[name] = s
		}
		s.of++
		h.path = append(h.path, s)
	}
	if !p.grow(h, n) {
		p.remove(h)
		return nil, false
	}
	p.holds = append(p.holds, h)
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
	if h.idle != idle {
		h.pool.seq++
		h.idle, h.seq = idle, h.pool.seq
	}
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
	for p.held+n > p.most {
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
	p.add(h, n)
	return true
}

// add adds units to a hold, its client and its networks. It is called with mu held.
func (p *Pool) add(h *Hold, n int64) {
	p.held += n
	h.n += n
	for _, s := range h.path {
		s.held += n
	}
}

// remove ends a hold. It is called with mu held.
func (p *Pool) remove(h *Hold) {
	p.add(h, -h.n)
	for _, s := range h.path {
		if s.of--; s.of == 0 {
			delete(p.shares, s.name)
		}
	}
	h.gone = true
	p.holds = slices.DeleteFunc(p.holds, func(o *Hold) bool { return o == h })
}

// victim returns the newest hold of the client from which another takes n units, nil if there is none: of the largest network the
// largest client. The first network that both do not share decides whether the newcomer would hold as much.
func (p *Pool) victim(h *Hold, n int64) *Hold {
	if len(p.holds) == 0 {
		return nil
	}
	found := slices.MaxFunc(p.holds, func(x, y *Hold) int { return cmp.Or(compare(x, y), cmp.Compare(x.seq, y.seq)) })
	for i, s := range found.path {
		if own := int64(0); i >= len(h.path) || h.path[i] != s {
			if i < len(h.path) {
				own = h.path[i].held
			}
			if s.held > own+n {
				return found
			}
			break
		}
	}
	return nil
}

// idleHold returns the hold that has been idle the longest, of the largest client with idle ones in the largest network with idle ones;
// nil if none is idle.
func (p *Pool) idleHold() (found *Hold) {
	for _, o := range p.holds {
		if o.idle && (found == nil || cmp.Or(compare(o, found), cmp.Compare(found.seq, o.seq)) > 0) {
			found = o
		}
	}
	return found
}

// compare compares what the clients of two holds hold: first the networks that they do not share.
func compare(x, y *Hold) int {
	for i := range min(len(x.path), len(y.path)) {
		if a, b := x.path[i], y.path[i]; a != b {
			return cmp.Or(cmp.Compare(a.held, b.held), cmp.Compare(b.name, a.name))
		}
	}
	return 0
}

// Held returns the units that are held.
func (p *Pool) Held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// pathOf returns the networks that a client belongs to, the largest first, and the client.
func pathOf(client string) (path []string) {
	if prefix, err := netip.ParsePrefix(client); err == nil {
		widths := []int{24}
		if prefix.Addr().Is6() {
			widths = []int{48, 56}
		}
		for _, bits := range widths {
			if wide, err := prefix.Addr().Prefix(bits); err == nil && bits < prefix.Bits() {
				path = append(path, wide.String())
			}
		}
	}
	return append(path, client)
}

// NetworkOf returns the largest network of a client that a Pool divides among (pathOf).
func NetworkOf(client string) string { return pathOf(client)[0] }
