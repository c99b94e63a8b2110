package intern

import (
	"context"
	"errors"
	"sync"

	"skein.blue/intern/dict"
)

// An allocator hands out the ids of one namespace and partition.
//
// A transaction checks out ranges of ids: whole groups (dict/group.go), or the rest of one. So
// two transactions in flight never write the same group. Unused ids are checked in again, and
// go out first the next time.
type allocator struct {
	leases *leaser
	ns     dict.Namespace
	part   uint8

	leasing  sync.Mutex // guards shard and hasShard; locked before mu
	shard    uint32     // of the last lease, if any
	hasShard bool

	mu    sync.Mutex // guards the fields below
	held  []idRange  // of leases, never checked out; the one in use first
	spare []idRange  // checked in
}

// An idRange is a range of ids of one lease.
type idRange struct{ next, end dict.ID }

func (s idRange) size() int { return int(s.end - s.next) }

// remaining returns the ids that can be checked out. The caller holds mu.
func (a *allocator) remaining() int {
	n := 0
	for _, s := range a.held {
		n += s.size()
	}
	for _, s := range a.spare {
		n += s.size()
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
		out = append(out, s)
		n -= s.size()
	}
	for n > 0 {
		l := &a.held[0]
		size := min(uint64(n+dict.GroupMask)&^dict.GroupMask+uint64(-l.next)&dict.GroupMask, uint64(l.end-l.next))
		out = append(out, idRange{l.next, l.next + dict.ID(size)})
		n -= int(size)
		if l.next += dict.ID(size); l.next == l.end {
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
		for ; len(ids) > 0 && ids[0] < s.end; ids = ids[1:] {
			a.addSpare(idRange{s.next, ids[0]})
			s.next = ids[0] + 1
		}
		a.addSpare(s)
	}
}

// addSpare makes a range spare. The caller holds mu.
func (a *allocator) addSpare(s idRange) {
	if s.next < s.end {
		a.spare = append(a.spare, s)
	}
}

// errClosed is returned by reserve after Close.
var errClosed = errors.New("intern: no ids after Close")

// reserve leases blocks until n ids can be checked out.
func (a *allocator) reserve(ctx context.Context, n int) error {
	a.leasing.Lock()
	defer a.leasing.Unlock()
	for {
		a.mu.Lock()
		left := a.remaining()
		a.mu.Unlock()
		if left >= n {
			return nil
		}
		if a.leases.open.Err() != nil {
			return errClosed
		}
		l, err := a.leases.lease(ctx, a)
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.held = append(a.held, l)
		a.mu.Unlock()
	}
}

// end gives up all ids.
func (a *allocator) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.spare = nil, nil
}
