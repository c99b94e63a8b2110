package intern

import (
	"cmp"
	"slices"

	"skein.blue/intern/dict"
)

// A checkout hands out, one by one, ids that were checked out of one allocator.
type checkout struct {
	a    *allocator
	out  []idRange // as they were checked out
	at   int       // of out, the one in use
	next dict.ID   // in it
	ids  []dict.ID // scratch
}

// need checks out what is missing for n more ids. It reports whether there were
// so many.
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
	// In ascending order, so that the strings of a group come together.
	slices.SortFunc(c.out[had:], func(x, y idRange) int { return cmp.Compare(x.next, y.next) })
	return ok
}

// take returns the next id. need has made sure that there is one.
func (c *checkout) take() dict.ID {
	for c.next = max(c.next, c.out[c.at].next); c.next == c.out[c.at].end; {
		c.at++
		c.next = c.out[c.at].next
	}
	c.next++
	return c.next - 1
}

// settle gives back what was not used: all but ids.
func (c *checkout) settle(ids []dict.ID) {
	if len(c.out) == 0 {
		return
	}
	slices.Sort(ids)
	slices.SortFunc(c.out, func(x, y idRange) int { return cmp.Compare(x.next, y.next) })
	c.a.settle(c.out, ids)
	c.out, c.at, c.next = c.out[:0], 0, dict.None
}
