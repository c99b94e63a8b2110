package ask

import (
	"bytes"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Several records may make one edge. Every method shows the same one of them, by this rule:
//
// A subject that is a record with a TID as its key has a time. Of the edge's records, the first
// one made after that time is shown, else the last one before it, else one whose key is not a
// TID. A subject without a time is an account, or a record with another key: the record with the
// lowest key is shown, as in app.bsky.graph.getRelationships.

// betterRecord reports whether p is shown rather than q, where both make one edge. since is the
// TID of the subject, or Timeless.
func betterRecord(p, q Path, since uint64) bool {
	switch {
	case since == Timeless:
		return lowerKey(p, q)
	case !p.HasTime() || !q.HasTime():
		return !q.HasTime() && (p.HasTime() || lowerKey(p, q))
	case (p.TID >= since) != (q.TID >= since):
		return p.TID >= since
	case p.TID >= since:
		return p.TID < q.TID
	}
	return p.TID > q.TID
}

// lowerKey reports whether p is the lower of two record keys, as strings.
func lowerKey(p, q Path) bool {
	if p.Raw == nil && q.Raw == nil {
		return p.TID < q.TID // TIDs sort as their numbers do
	}
	return string(p.AppendRkey(nil)) < string(q.AppendRkey(nil))
}

// A ShownRecord picks the record of an edge that is shown.
type ShownRecord struct {
	path  Path
	found bool
}

// Offer offers a record of the edge. since is the TID of the edge's subject, or Timeless.
func (e *ShownRecord) Offer(p Path, since uint64) {
	if e.found && !betterRecord(p, e.path, since) {
		return
	}
	p.Raw = bytes.Clone(p.Raw)
	e.path, e.found = p, true
}

// Path returns the path of the shown record; found is false if no record was offered. e may be
// nil.
func (e *ShownRecord) Path() (p Path, found bool) {
	if e == nil {
		return p, false
	}
	return e.path, e.found
}

// RecordsTo calls each, in no order, with the record in a window by which each of the actors has
// an edge to subject. It skips actors without one. since is the TID of the subject, or Timeless:
// records are most likely soon after it, and RecordsTo looks there first.
func (s *edges) RecordsTo(k kinds.Kind, subject dict.ID, since uint64, w Window, actors []dict.ID, each func(i int, p Path) error) error {
	left := make([]int, len(actors))
	for i := range left {
		left[i] = i
	}
	if since < EndOfTime && (w.All() || since >= w.From) {
		const soon = 2 // buckets of 12.7 days
		var scan []int
		for n := range uint64(soon) {
			if since+n<<format.BucketShift >= EndOfTime {
				break // the records there have no time
			}
			rest, spilled, err := s.lookUpRecords(k, func(int) uint64 { return since + n<<format.BucketShift }, actors, left, func(i int, records []format.Record) (bool, error) {
				for j := range records { // they ascend
					r := &records[j]
					switch {
					case r.Flags != 0 || r.Subject != subject || r.Path.TID < since:
					case w.Has(r.Path):
						return true, each(i, r.Path)
					default:
						scan = append(scan, i)
						return true, nil
					}
				}
				return false, nil
			})
			if err != nil {
				return err
			}
			left, scan = rest, append(scan, spilled...)
		}
		left = append(left, scan...)
	}
	isSubject := func(id dict.ID) bool { return id == subject }
	for i := range ahead(s.state, slices.Values(left), func(i int) { s.beginRecords(k, actors[i], w) }) {
		var best ShownRecord
		err := read.RecordsNaming(s.r, k, actors[i], w, isSubject, func(r *format.Record) bool {
			best.Offer(r.Path, since)
			return true
		})
		if err == nil && best.found {
			err = each(i, best.path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A Dated is a member of a reverse set and its date: all of its records of the edge are of that second (format.DateOf).
type Dated struct {
	Actor dict.ID
	Date  uint32
}

// RecordsAt is RecordsTo for members whose dates are known: it looks up one bucket of each, and reads the records of those
// whose bucket was spilled.
func (s *edges) RecordsAt(k kinds.Kind, subject dict.ID, since uint64, w Window, members []Dated, each func(i int, p Path) error) error {
	actors := make([]dict.ID, len(members))
	left := make([]int, 0, len(members))
	var scan []int
	for i, m := range members {
		if actors[i] = m.Actor; !k.IsLabel() && format.InOneBucket(m.Date) {
			left = append(left, i)
		} else {
			scan = append(scan, i)
		}
	}
	at := func(i int) uint64 { return TIDAt(uint64(members[i].Date) * second) }
	rest, spilled, err := s.lookUpRecords(k, at, actors, left, func(i int, records []format.Record) (bool, error) {
		var best ShownRecord
		for j := range records {
			if r := &records[j]; r.Flags == 0 && r.Subject == subject && w.Has(r.Path) {
				best.Offer(r.Path, since)
			}
		}
		if !best.found {
			return false, nil
		}
		return true, each(i, best.path)
	})
	if err != nil {
		return err
	}
	scan = slices.Concat(scan, rest, spilled)
	others := make([]dict.ID, len(scan))
	for n, i := range scan {
		others[n] = actors[i]
	}
	return s.RecordsTo(k, subject, since, w, others, func(n int, p Path) error { return each(scan[n], p) })
}

// lookUpRecords looks up one bucket of each of the actors in left: that of the TID that at returns. It calls wanted with the records there, in
// order, removed ones included. lookUpRecords returns the actors that have none there or for which wanted returned false (rest), and those
// whose bucket was spilled, for which it does not call wanted.
func (s *edges) lookUpRecords(k kinds.Kind, at func(i int) uint64, actors []dict.ID, left []int, wanted func(i int, records []format.Record) (bool, error)) (rest, spilled []int, err error) {
	const most = 2048 // keys at once: their values are in memory together, and the engine reads them before it charges for the first
	var key []byte
	var records []format.Record
	for some := range slices.Chunk(left, most) {
		var keys kv.Keys
		for _, i := range some {
			key = format.AppendChunkKey(key[:0], k, actors[i], Path{TID: at(i)}, 0)
			keys.Add(key)
		}
		err = s.r.MultiGet(keys.List(), func(n int, v []byte, ok bool) error {
			i := some[n]
			if !ok {
				rest = append(rest, i)
				return nil
			}
			var generation uint64
			var err error
			if records, generation, err = format.CoderOf(k, actors[i], Path{TID: at(i)}.Bucket()).Read(records[:0], v, 0); err != nil {
				return fmt.Errorf("graph: reading records %x: %w", keys.List()[n], err)
			}
			if generation > 0 {
				spilled = append(spilled, i)
				return nil
			}
			found, err := wanted(i, records)
			if err == nil && !found {
				rest = append(rest, i)
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return rest, spilled, nil
}

// RecordsFrom calls each, in no order, with the record in a window by which actor has an edge to
// each of the subjects. It skips subjects without one. since returns the TID of a subject, or
// Timeless. subjects may contain duplicates.
func (s *edges) RecordsFrom(k kinds.Kind, actor dict.ID, subjects []dict.ID, since func(i int) uint64, w Window, each func(i int, p Path) error) error {
	if actor == dict.None {
		return nil
	}
	first := make(map[dict.ID]int, len(subjects))
	for i, id := range subjects {
		if _, again := first[id]; !again {
			first[id] = i
		}
	}
	best := make([]ShownRecord, len(subjects))
	err := read.RecordsNaming(s.r, k, actor, w, func(id dict.ID) bool { _, ok := first[id]; return ok && id != dict.None }, func(r *format.Record) bool {
		i := first[r.Subject]
		best[i].Offer(r.Path, since(i))
		return true
	})
	for i, id := range subjects {
		if err == nil && best[first[id]].found {
			err = each(i, best[first[id]].path)
		}
	}
	return err
}

// NoTime is RecordsFrom's since for subjects without a time.
func NoTime(int) uint64 { return Timeless }

// Records calls each, in no order, with the subject and path of each of an actor's records, even
// if accounts are hidden, until each returns false. The path is valid during the call.
func (s *edges) Records(k kinds.Kind, actor dict.ID, each func(p Path, subject dict.ID) bool) error {
	if actor == dict.None {
		return nil
	}
	return read.RecordsIn(s.r, k, actor, Window{}, func(r *format.Record) bool {
		return r.Subject == dict.None || each(r.Path, r.Subject)
	})
}
