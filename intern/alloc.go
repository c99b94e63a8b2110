package intern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// An allocator hands out the ids of one namespace and partition. It takes leases ahead of
// need, in one goroutine at a time.
//
// A transaction checks out ranges of ids: whole groups (dict/group.go), or the rest of one. So
// two transactions in flight never write the same group. Unused ids are checked in again, and
// go out first the next time.
type allocator struct {
	leases *leaser
	ns     dict.Namespace
	part   uint8

	// Only fetch uses these: the shard of the last lease, if any, and the number of attempts
	// that the lease took.
	shard    uint32
	hasShard bool
	attempts int

	mu       sync.Mutex    // guards the fields below
	held     []*held       // leases with ids that were never checked out, the one in use first
	spare    []idRange     // checked in
	done     []*held       // used up; their rows must be closed
	out      int           // ids that are checked out
	ahead    chan struct{} // closed when the fetch under way ends; nil if there is none
	aheadErr error         // the error of the last fetch
}

// held is a lease of this writer, and the use of its ids.
type held struct {
	dict.Lease
	next, end dict.ID // not checked out yet
	out       int     // checked out, and neither used nor checked in
	free      int     // checked in
	used      int     // in use by strings
}

// An idRange is a range of ids of one lease.
type idRange struct {
	next, end dict.ID
	of        *held
}

func (l *held) close(tx kv.Txn) {
	row := l.Lease
	row.Used, row.Closed = uint32(l.used), true
	tx.Set(dict.AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), row.Value())
}

// remaining returns the ids that can be checked out. The caller holds mu.
func (a *allocator) remaining() int {
	n := 0
	for _, l := range a.held {
		n += int(l.end - l.next)
	}
	for _, s := range a.spare {
		n += int(s.end - s.next)
	}
	return n
}

// checkOut appends ranges of at least n ids, or nothing if fewer remain.
func (a *allocator) checkOut(n int, out []idRange) (_ []idRange, ok bool) {
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
		a.out += size
		out = append(out, s)
		n -= size
	}
	for n > 0 {
		l := a.held[0]
		size := min(uint64(n+dict.GroupMask)&^dict.GroupMask+uint64(-l.next)&dict.GroupMask, uint64(l.end-l.next))
		out = append(out, idRange{l.next, l.next + dict.ID(size), l})
		l.next += dict.ID(size)
		l.out += int(size)
		a.out += int(size)
		n -= int(size)
		if l.next == l.end {
			a.held = a.held[1:]
		}
	}
	return out, true
}

// settle ends a checkout. The ids, ascending, are in use by strings; the others are spare.
func (a *allocator) settle(out []idRange, ids []dict.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range out {
		l, from := s.of, s.next
		l.out -= int(s.end - s.next)
		a.out -= int(s.end - s.next)
		for ; len(ids) > 0 && ids[0] < s.end; ids = ids[1:] {
			a.addSpare(idRange{from, ids[0], l})
			from = ids[0] + 1
			l.used++
		}
		a.addSpare(idRange{from, s.end, l})
		if l.out == 0 && l.free == 0 && l.next == l.end {
			a.done = append(a.done, l)
		}
	}
}

// addSpare makes a range spare. The caller holds mu.
func (a *allocator) addSpare(s idRange) {
	if s.next < s.end {
		s.of.free += int(s.end - s.next)
		a.spare = append(a.spare, s)
	}
}

// errClosed is returned by reserve after Close.
var errClosed = errors.New("intern: no ids after Close")

// reserve waits until n ids can be checked out. If less than a quarter of a lease would be
// left, it fetches the next lease in the background.
func (a *allocator) reserve(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		left := a.remaining()
		a.leases.metrics.remaining(a.ns, a.part, left)
		a.fetchAhead(ctx, left-n)
		wait, failed := a.ahead, a.aheadErr
		a.mu.Unlock()
		if left >= n {
			return nil
		}
		if wait == nil {
			return errors.Join(failed, errClosed)
		}
		a.leases.metrics.waited(a.ns)
		select {
		case <-wait:
			a.mu.Lock()
			failed = a.aheadErr
			a.mu.Unlock()
			if failed != nil {
				return failed
			}
		case <-ctx.Done():
			return fmt.Errorf("intern: waiting for a lease: %w", ctx.Err())
		}
	}
}

// fetchAhead fetches the next lease in the background, if less than a quarter of one is left
// and no fetch is under way. The caller holds mu.
func (a *allocator) fetchAhead(ctx context.Context, left int) {
	if left > int(a.leases.settings.LeaseSize)/4 || a.ahead != nil || a.leases.closed() {
		return
	}
	done := make(chan struct{})
	a.ahead = done
	a.leases.inBackground(ctx, func(ctx context.Context) { a.fetch(ctx, done) })
}

// prefetch fetches the next lease in the background, if few ids remain.
func (a *allocator) prefetch(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.remaining()
	a.leases.metrics.remaining(a.ns, a.part, left)
	a.fetchAhead(ctx, left)
}

// fetch takes one lease. Only one fetch of an allocator runs at a time.
func (a *allocator) fetch(ctx context.Context, done chan struct{}) {
	a.mu.Lock()
	closing := a.done
	a.done = nil
	a.mu.Unlock()
	l, err := a.leases.lease(ctx, a, closing)
	a.mu.Lock()
	if err == nil {
		a.held = append(a.held, l)
	} else {
		a.done = append(a.done, closing...)
	}
	a.ahead, a.aheadErr = nil, err
	close(done)
	a.mu.Unlock()
}

// all returns the leases whose rows may be closed, and the number of ids that are still checked
// out, by transactions of unknown outcome. Their leases stay open.
func (a *allocator) all() (all []*held, out int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all = append(slices.Clone(a.done), a.held...)
	for _, s := range a.spare {
		all = append(all, s.of)
	}
	slices.SortFunc(all, func(x, y *held) int {
		return cmp.Or(cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.Block, y.Block))
	})
	a.done, a.held, a.spare = nil, nil, nil
	return slices.DeleteFunc(slices.Compact(all), func(l *held) bool { return l.out > 0 }), a.out
}
