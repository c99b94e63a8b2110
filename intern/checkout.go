package intern

import (
	"cmp"
	"slices"

	"skein.blue/intern/dict"
)

// A checkout hands out single ids of the ranges that it checked out of an allocator.
type checkout struct {
	a    *allocator
	out  []idRange // the ranges
	at   int       // the index of the range in use
	next dict.ID   // the next id in it
	ids  []dict.ID // scratch
}

// need checks out enough ranges for n more ids. It reports whether there were enough ids.
func (c *checkout) need(n int) (ok bool) {
	for i, s := range c.out[min(c.at, len(c.out)):] {
		if i == 0 {
			s.next = max(s.next, c.next)
		}
		n -= int(s.end - s.next)
	}
	if n <= 0 {
		return true
	}
	had := len(c.out)
	c.out, ok = c.a.checkOut(n, c.out)
	// In ascending order, so that the strings of a group stay together.
	slices.SortFunc(c.out[had:], func(x, y idRange) int { return cmp.Compare(x.next, y.next) })
	return ok
}

// take returns the next id. Call need first.
func (c *checkout) take() dict.ID {
	for c.next = max(c.next, c.out[c.at].next); c.next == c.out[c.at].end; {
		c.at++
		c.next = c.out[c.at].next
	}
	c.next++
	return c.next - 1
}

// settle checks in all ids but the given ones, which are in use.
func (c *checkout) settle(ids []dict.ID) {
	if len(c.out) == 0 {
		return
	}
	slices.Sort(ids)
	slices.SortFunc(c.out, func(x, y idRange) int { return cmp.Compare(x.next, y.next) })
	c.a.settle(c.out, ids)
	c.out, c.at, c.next = c.out[:0], 0, dict.None
}
