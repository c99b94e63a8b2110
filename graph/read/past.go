package read

import (
	"slices"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// Backfill returns the state of the backfill of all writers: the roster and the sweep that all of them have, and what any of
// them has under way.
func Backfill(r kv.Reader, l format.Layout) (b format.Backfill, err error) {
	end := uint8(0) // rows were found for the partitions below end
	err = kv.ScanPrefix(r, format.KeyBackfill, func(k, v []byte) error {
		one, err := format.DecodeBackfill(v)
		first := k[len(k)-1]
		if first == 0 {
			b = one
		} else {
			b.Roster = both(b.Roster, one.Roster)
			b.Sweep, b.Swept = max(b.Sweep, one.Sweep), min(b.Swept, one.Swept)
			if b.Archive == "" && len(b.Hosts) == 0 {
				b.Archive, b.Begun, b.Hosts, b.Named, b.ListingFrom, b.ListingHoles = one.Archive, one.Begun, one.Hosts, one.Named, one.ListingFrom, one.ListingHoles
			}
		}
		if first <= end {
			end = max(end, one.End)
		}
		return err
	})
	if end < l.Settings.Partitions { // a writer has not finished any
		b.Roster, b.Swept = format.Roster{}, 0
	}
	return b, err
}

// both returns the roster of two writers: each reads the accounts of its partitions.
func both(a, b format.Roster) format.Roster {
	if !a.Known() || !b.Known() {
		return format.Roster{}
	}
	if b.AsOf.Before(a.AsOf) {
		a.AsOf = b.AsOf
	}
	a.Unconfirmed = a.Unconfirmed || b.Unconfirmed
	a.Unlisted = append(slices.Clone(a.Unlisted), b.Unlisted...)
	slices.Sort(a.Unlisted)
	a.Unlisted = slices.Compact(a.Unlisted)
	return a
}

// Holes returns the holes of the stream: the newest for any writer, and whether they are uncompared for any.
func Holes(r kv.Reader) (all format.Holes, err error) {
	err = kv.ScanPrefix(r, format.KeyHoles, func(_, v []byte) error {
		h, err := format.DecodeHoles(v)
		if h.Uncompared() || !all.Uncompared() && h.Noted > all.Noted {
			all.Noted, all.Compared = h.Noted, h.Compared
		}
		if h.Unbroken.After(all.Unbroken) {
			all.Unbroken = h.Unbroken
		}
		return err
	})
	return all, err
}
