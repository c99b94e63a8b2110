package read

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// EachPart calls each with the rows of a kind of Backfill or Holes, whose pieces follow one another.
func EachPart[T any](r kv.Reader, key []byte, each func(T)) error {
	var all []byte
	err := kv.ScanPrefix(r, key, func(_, v []byte) error {
		all = append(all, v...)
		return nil
	})
	for d := json.NewDecoder(bytes.NewReader(all)); err == nil && d.InputOffset() < int64(len(all)); {
		var row T
		if err = d.Decode(&row); err != nil {
			return fmt.Errorf("reading a %T: %w", row, err)
		}
		each(row)
	}
	return err
}

// Backfill returns the state of the backfill for some partitions: the roster and the sweep that all of them have, and what is under way
// for any.
func Backfill(r kv.Reader, parts format.Partitions) (b format.Backfill, err error) {
	err = EachPart(r, format.KeyBackfill, func(one format.Backfill) {
		if one.Parts&parts != 0 {
			b = BothBackfills(b, one)
		}
	})
	return BothBackfills(b, format.Backfill{Parts: parts &^ b.Parts}), err // nothing was fetched for some
}

// BothBackfills returns what holds for the partitions of two rows: the roster and the sweep that both have, and what either has under
// way, from where neither misses anything. The cursor of an archive is that of each partition.
func BothBackfills(a, b format.Backfill) format.Backfill {
	switch {
	case a.Parts == 0:
		return b
	case b.Parts == 0:
		return a
	}
	all := a
	all.Parts, all.Roster, all.Hosts = a.Parts|b.Parts, bothRosters(a.Roster, b.Roster), map[string]format.HostBackfill{}
	if all.Archive = cmp.Or(a.Archive, b.Archive); b.Begun.After(a.Begun) {
		all.Begun = b.Begun
	}
	if all.Sweep, all.SweepAt, all.Swept = max(a.Sweep, b.Sweep), min(a.SweepAt, b.SweepAt), min(a.Swept, b.Swept); a.Sweep != b.Sweep {
		all.SweepAt = 0
	}
	if b.Round.Ended.Before(a.Round.Ended) {
		all.Round = b.Round
	}
	if a.Around.Hops == 0 {
		all.Around = b.Around
	}
	addHosts(&all, &a, &b)
	addHosts(&all, &b, &a)
	return all
}

// addHosts adds the hosts whose lists are being read for some partitions, beside those of others. It begins the lists again that were not
// read as far for both.
func addHosts(all, mine, others *format.Backfill) {
	if len(mine.Hosts) == 0 || !mine.Named && mine.Roster.Known() && (!others.Roster.Known() || len(mine.Roster.Unlisted) > 0 && others.Named && len(others.Hosts) > 0) { // these are only what its roster lacks
		return
	}
	if isFirst := len(all.Hosts) == 0; isFirst {
		all.Named, all.ListingFrom, all.ListingHoles = mine.Named, mine.ListingFrom, mine.ListingHoles
	} else {
		all.Named, all.ListingHoles = all.Named && mine.Named, min(all.ListingHoles, mine.ListingHoles)
		if mine.ListingFrom.Before(all.ListingFrom) {
			all.ListingFrom = mine.ListingFrom
		}
	}
	for host, at := range mine.Hosts {
		if others.Hosts[host] != at {
			at = format.HostBackfill{}
		}
		all.Hosts[host] = at
	}
}

// bothRosters returns the roster of two writers: each reads the accounts of its partitions.
func bothRosters(a, b format.Roster) format.Roster {
	if !a.Known() || !b.Known() {
		return format.Roster{}
	}
	if b.AsOf.Before(a.AsOf) {
		a.AsOf = b.AsOf
	}
	a.Unconfirmed, a.Archived = a.Unconfirmed || b.Unconfirmed, a.Archived || b.Archived
	a.Unlisted = append(slices.Clone(a.Unlisted), b.Unlisted...)
	slices.Sort(a.Unlisted)
	a.Unlisted = slices.Compact(a.Unlisted)
	return a
}

// Holes returns the holes of the stream for some partitions. A hole in any of their rows, which may be of other divisions of the
// partitions, counts for all.
func Holes(r kv.Reader, parts format.Partitions) (all format.Holes, err error) {
	err = EachPart(r, format.KeyHoles, func(h format.Holes) {
		if h.Parts&parts != 0 {
			all = BothHoles(all, h)
		}
	})
	if parts&^all.Parts != 0 { // some have never heard a stream
		all.Unbroken = time.Time{}
	}
	all.Parts = parts
	return all, err
}

// BothHoles returns what holds for the partitions of two rows: the newest hole, and whether they are uncompared for either.
func BothHoles(a, b format.Holes) format.Holes {
	if a.Parts == 0 {
		return b
	}
	all := format.Holes{Parts: a.Parts | b.Parts, Noted: max(a.Noted, b.Noted), Floors: map[uint32]format.Seq{}}
	all.Compared = all.Noted
	for _, h := range []*format.Holes{&a, &b} {
		if h.Uncompared() {
			all.Compared = min(all.Compared, h.Compared)
		}
		all.Untimed = all.Untimed || h.Untimed
		for number, seq := range h.Floors { // both rows may have it, from before one of them moved
			all.Floors[number] = max(all.Floors[number], seq)
		}
	}
	if !a.Unbroken.IsZero() && !b.Unbroken.IsZero() { // else one of them has never heard a stream
		all.Unbroken = slices.MaxFunc([]time.Time{a.Unbroken, b.Unbroken}, time.Time.Compare)
	}
	return all
}
