package algebra

import (
	"cmp"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
)

// An Order is an order of members by the times of their records. Members without a time come last, and so do those whose time
// is ahead of the present. Ties are ordered by id.
type Order struct {
	Oldest bool   // first; else the newest
	now    int64  // the present, in microseconds
	latest uint64 // times after it are ahead of the present
}

// OrderAt returns an order at a time, the present of the first page.
func OrderAt(now time.Time, oldest bool) Order {
	return Order{oldest, now.UnixMicro(), uint64(language.LatestAt(now))}
}

// timeOf returns the time by which a record is ordered: ask.Timeless if it comes last.
func (o Order) timeOf(p ask.Path) uint64 {
	if at := ask.TimeOf(p); at <= o.latest {
		return at
	}
	return ask.Timeless
}

// IsAhead reports whether a record's time is ahead of the present.
func (o Order) IsAhead(p ask.Path) bool { return p.HasTime() && ask.TimeOf(p) > o.latest }

// Compare compares two members by their places in the order.
func (o Order) Compare(x, y MemberRecord) int {
	return o.compare(o.timeOf(x.Path), o.timeOf(y.Path), x.ID, y.ID)
}

func (o Order) compare(x, y uint64, xID, yID dict.ID) int {
	if (x == ask.Timeless) != (y == ask.Timeless) {
		return cmp.Compare(x, y)
	}
	if o.Oldest {
		x, y, xID, yID = y, x, yID, xID
	}
	return cmp.Or(cmp.Compare(y, x), cmp.Compare(xID, yID))
}

// A Place says after which member a page of Records starts: not at the beginning (Begun), but after
// the member with this time and id. Sorted is decided on the first page, and applies to all later
// pages.
type Place struct {
	Begun  bool
	Sorted bool
	Micros uint64 // ask.Timeless among those that come last
	ID     dict.ID
	Now    int64 // the time of the first page in microseconds; 0 if nothing in the set is ahead of it
}

// At returns the present of the first page: now, on that page itself and if it does not matter.
func (p *Place) At(now time.Time) time.Time {
	if p.Now != 0 {
		return time.UnixMicro(p.Now)
	}
	return now
}
