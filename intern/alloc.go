package intern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"skein/internal/kv"
)

// An allocator hands out the ids of one namespace and partition. Leases are
// taken ahead of need, by one goroutine at a time.
//
// Ids are checked out in stretches: whole groups (strings.go), or what is left
// of one, so that two transactions that are in flight together never write the
// same group. What a transaction did not use is checked in again, and goes out
// first the next time.
type allocator struct {
	in   *Interner
	ns   Namespace
	part uint8

	// Of who fetches: the shard that the last lease was drawn from, if there is
	// one, and how often that lease was tried.
	shard    uint32
	hasShard bool
	attempts int

	mu      sync.Mutex
	leases  []*held       // with ids that were never checked out, in use first
	spare   []stretch     // checked in
	done    []*held       // used up; their rows are to be closed
	ahead   chan struct{} // closed when the fetch under way has ended; nil: none
	aheadOf error         // how the last fetch ahead ended
}

// held is a lease with what has been used of it.
type held struct {
	Lease
	next, end ID  // not checked out yet
	out       int // checked out, and neither used nor checked in
	free      int // checked in
	used      int // given to strings
}

// A stretch is a run of ids of one lease.
type stretch struct {
	next, end ID
	of        *held
}

func (l *held) close(tx kv.Txn) {
	row := l.Lease
	row.Used, row.Closed = uint32(l.used), true
	tx.Set(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), row.value())
}

// remaining is called with mu held.
func (a *allocator) remaining() int {
	n := 0
	for _, l := range a.leases {
		n += int(l.end - l.next)
	}
	for _, s := range a.spare {
		n += int(s.end - s.next)
	}
	return n
}

// checkOut appends stretches of at least n ids, or nothing when there are not
// so many.
func (a *allocator) checkOut(n int, out []stretch) (_ []stretch, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.remaining() < n {
		return out, false
	}
	for ; n > 0 && len(a.spare) > 0; a.spare = a.spare[:len(a.spare)-1] {
		s := a.spare[len(a.spare)-1]
		size := int(s.end - s.next)
		s.of.free -= size
		s.of.out += size
		out = append(out, s)
		n -= size
	}
	for n > 0 {
		l := a.leases[0]
		size := min(uint64(n+groupMask)&^groupMask+uint64(-l.next)&groupMask, uint64(l.end-l.next))
		out = append(out, stretch{l.next, l.next + ID(size), l})
		l.next += ID(size)
		l.out += int(size)
		n -= int(size)
		if l.next == l.end {
			a.leases = a.leases[1:]
		}
	}
	return out, true
}

// settle takes back what was checked out: ids, ascending, are those that have
// been given to strings since.
func (a *allocator) settle(out []stretch, ids []ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range out {
		l, from := s.of, s.next
		l.out -= int(s.end - s.next)
		for ; len(ids) > 0 && ids[0] < s.end; ids = ids[1:] {
			a.give(stretch{from, ids[0], l})
			from = ids[0] + 1
			l.used++
		}
		a.give(stretch{from, s.end, l})
		if l.out == 0 && l.free == 0 && l.next == l.end {
			a.done = append(a.done, l)
		}
	}
}

// give makes a stretch spare. It is called with mu held.
func (a *allocator) give(s stretch) {
	if s.next < s.end {
		s.of.free += int(s.end - s.next)
		a.spare = append(a.spare, s)
	}
}

// reserve makes sure that n ids can be checked out, and has the next lease
// fetched in the background when less than a quarter of one would be left.
func (a *allocator) reserve(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		left := a.remaining()
		a.in.metrics.remaining(a.ns, a.part, left)
		a.fetchAhead(left - n)
		wait, failed := a.ahead, a.aheadOf
		a.mu.Unlock()
		if left >= n {
			return nil
		}
		if wait == nil {
			return errors.Join(failed, a.in.ctx.Err())
		}
		a.in.metrics.waited(a.ns)
		select {
		case <-wait:
			a.mu.Lock()
			failed = a.aheadOf
			a.mu.Unlock()
			if failed != nil {
				return failed
			}
		case <-ctx.Done():
			return fmt.Errorf("intern: waiting for a lease: %w", ctx.Err())
		}
	}
}

// fetchAhead has the next lease fetched when less than a quarter of one is left,
// and nobody is fetching one already. It is called with mu held.
func (a *allocator) fetchAhead(left int) {
	if left > int(a.in.settings.LeaseSize)/4 || a.ahead != nil || a.in.ctx.Err() != nil {
		return
	}
	done := make(chan struct{})
	a.ahead = done
	a.in.background.Go(func() { a.fetch(done) })
}

// prefetch has the next lease fetched if it is time.
func (a *allocator) prefetch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.remaining()
	a.in.metrics.remaining(a.ns, a.part, left)
	a.fetchAhead(left)
}

// fetch takes one lease. It is the only one of its allocator to run.
func (a *allocator) fetch(done chan struct{}) {
	a.mu.Lock()
	closing := a.done
	a.done = nil
	a.mu.Unlock()
	l, err := a.in.lease(a.in.ctx, a, closing)
	a.mu.Lock()
	if err == nil {
		a.leases = append(a.leases, l)
	} else {
		a.done = append(a.done, closing...)
	}
	a.ahead, a.aheadOf = nil, err
	close(done)
	a.mu.Unlock()
	a.in.usage(a.in.ctx)
}

// all returns the leases whose rows may be closed: of which no ids are still
// checked out, by transactions that ended without anybody knowing how.
func (a *allocator) all() []*held {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := append(slices.Clone(a.done), a.leases...)
	for _, s := range a.spare {
		all = append(all, s.of)
	}
	slices.SortFunc(all, func(x, y *held) int {
		return cmp.Or(cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.Block, y.Block))
	})
	a.done, a.leases, a.spare = nil, nil, nil
	return slices.DeleteFunc(slices.Compact(all), func(l *held) bool { return l.out > 0 })
}

// A drawer hands out, one by one, ids that were checked out of one allocator.
type drawer struct {
	a    *allocator
	out  []stretch // as they were checked out
	at   int       // of out, the one in use
	next ID        // in it
	ids  []ID      // scratch
}

// need checks out what is missing for n more ids. It reports whether there were
// so many.
func (d *drawer) need(n int) (ok bool) {
	for i, s := range d.out[min(d.at, len(d.out)):] {
		if i == 0 {
			s.next = max(s.next, d.next)
		}
		n -= int(s.end - s.next)
	}
	if n <= 0 {
		return true
	}
	had := len(d.out)
	d.out, ok = d.a.checkOut(n, d.out)
	// In ascending order, so that the strings of a group come together.
	slices.SortFunc(d.out[had:], func(x, y stretch) int { return cmp.Compare(x.next, y.next) })
	return ok
}

// take returns the next id. need has made sure that there is one.
func (d *drawer) take() ID {
	for d.next = max(d.next, d.out[d.at].next); d.next == d.out[d.at].end; {
		d.at++
		d.next = d.out[d.at].next
	}
	d.next++
	return d.next - 1
}

// settle gives back what was not used: all but ids.
func (d *drawer) settle(ids []ID) {
	if len(d.out) == 0 {
		return
	}
	slices.Sort(ids)
	slices.SortFunc(d.out, func(x, y stretch) int { return cmp.Compare(x.next, y.next) })
	d.a.settle(d.out, ids)
	d.out, d.at, d.next = d.out[:0], 0, None
}
