package ask

import (
	"errors"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// edges reads the sets in both directions, and the records behind them. Its methods are View's.
type edges struct{ *state }

// Subjects returns a forward set, such as follows: the subjects of actor's edges. It is empty if
// actor is hidden.
func (s *edges) Subjects(k kinds.Kind, actor dict.ID) (sets.Set, error) {
	return s.SubjectsIn(k, actor, Window{})
}

// SubjectsIn is Subjects, restricted to records in a window.
func (s *edges) SubjectsIn(k kinds.Kind, actor dict.ID, w Window) (sets.Set, error) {
	ids, err := s.AppendSubjects(nil, k, actor, w)
	return sets.FromUnsorted(ids), err
}

// AppendSubjects appends a forward set, restricted to records in a window, to dst. It is not
// sorted, and has a subject once per record.
func (s *edges) AppendSubjects(dst []uint64, k kinds.Kind, actor dict.ID, w Window) ([]uint64, error) {
	if actor == dict.None || s.IsHidden(actor) {
		return dst, nil
	}
	return read.AppendSubjects(s.r, k, actor, w, dst)
}

// EachSubject calls each with the subject and the path of every record of an actor in a window, in
// no order, with a subject once per record, until it fails. The path is valid during the call.
func (s *edges) EachSubject(k kinds.Kind, actor dict.ID, w Window, each func(subject dict.ID, p Path) error) (err error) {
	if actor == dict.None || s.IsHidden(actor) {
		return nil
	}
	scanned := read.RecordsIn(s.r, k, actor, w, func(r *format.Record) bool {
		if r.Subject != dict.None {
			err = each(r.Subject, r.Path)
		}
		return err == nil
	})
	return errors.Join(err, scanned)
}

// NewestTo returns the TID of the newest of actor's records in a window that name subject. found is
// false if there is none, or only records whose keys are not TIDs.
func (s *edges) NewestTo(k kinds.Kind, actor, subject dict.ID, w Window) (tid uint64, found bool, err error) {
	if actor == dict.None || subject == dict.None {
		return 0, false, nil
	}
	err = read.RecordsNaming(s.r, k, actor, w, func(id dict.ID) bool { return id == subject }, func(r *format.Record) bool {
		if r.Path.HasTime() {
			tid, found = max(tid, r.Path.TID), true
		}
		return true
	})
	return tid, found, err
}

// ActorsIn returns the members of from that have an edge to subject by a record in a window. In a window within one
// bucket, it looks up that bucket of all members together; otherwise it scans the records of each.
func (s *edges) ActorsIn(k kinds.Kind, subject dict.ID, w Window, from sets.Set) (sets.Set, error) {
	var in sets.Collector
	if w.InOneBucket() && subject != dict.None && !k.IsLabel() {
		var actors []dict.ID
		var all []int
		for id := range from.All() {
			all = append(all, len(actors))
			actors = append(actors, dict.ID(id))
		}
		_, spilled, err := s.lookUpRecords(k, func(int) uint64 { return w.From }, actors, all, func(i int, records []format.Record) (bool, error) {
			if slices.ContainsFunc(records, func(r format.Record) bool { return r.Flags == 0 && r.Subject == subject && w.Has(r.Path) }) {
				in.Add(uint64(actors[i]))
			}
			return true, nil
		})
		if err != nil {
			return sets.Set{}, err
		}
		scan := make([]uint64, len(spilled))
		for n, i := range spilled {
			scan[n] = uint64(actors[i])
		}
		from = sets.FromUnsorted(scan)
	}
	for actor := range ahead(s.state, from.All(), func(actor uint64) { s.BeginEdge(k, dict.ID(actor), subject, w) }) {
		has, err := s.HasEdgeIn(k, dict.ID(actor), subject, w)
		if err != nil {
			return sets.Set{}, err
		}
		if has {
			in.Add(actor)
		}
	}
	return in.Set(), nil
}

// DatedIn divides the members of a reverse set, by their dates: those that have an edge to subject by a
// record in a window (in), and those whose records must be read to know it (unsure). For a set without
// containers, all are unsure. The window must not be the one that includes everything.
func (s *edges) DatedIn(k kinds.Kind, subject dict.ID, w Window) (in, unsure sets.Set, err error) {
	from, to := MicrosOf(w.From), MicrosOf(w.To)
	var sure, open sets.Collector
	if subject == dict.None {
		return in, unsure, nil
	}
	_, err = read.Dates(s.r, s.source.Layout, k, subject, DatesBetween(from, to), func(id uint64, date uint32) error {
		begin, end := uint64(date)*second, (uint64(date)+1)*second
		switch {
		case date == Undated, begin < from && from < end, begin < to && to < end:
			open.Add(id)
		case begin >= from && end <= to:
			sure.Add(id)
		}
		return nil
	})
	return sure.Set(), open.Set(), err
}

// Dates calls each with those members of a reverse set whose dates are wanted, in no order, and with their dates (read.Dates).
func (s *edges) Dates(k kinds.Kind, subject dict.ID, wanted *DateRange, each func(id uint64, date uint32) error) (members uint64, err error) {
	if subject == dict.None {
		return 0, nil
	}
	return read.Dates(s.r, s.source.Layout, k, subject, wanted, each)
}

// Repeated returns the members of a reverse set that may have several records of the edge. known is false if any
// member may: if the set has containers, and for kinds whose sets do not note it (format.HasRepeated).
func (s *edges) Repeated(k kinds.Kind, subject dict.ID) (members sets.Set, known bool, err error) {
	if subject == dict.None || !format.HasRepeated(k) {
		return members, false, nil
	}
	t, err := read.OpenSet(s.r, s.source.Layout, k, subject)
	if err != nil || t.Generation > 0 {
		return members, false, err
	}
	return sets.FromUnsorted(t.Repeated), true, nil
}

// HasEdgeIn reports whether a record of actor in a window names subject, even if either account
// is hidden.
func (s *edges) HasEdgeIn(k kinds.Kind, actor, subject dict.ID, w Window) (found bool, err error) {
	if w.All() {
		return s.HasEdge(k, actor, subject)
	}
	if actor == dict.None || subject == dict.None {
		return false, nil
	}
	err = read.RecordsNaming(s.r, k, actor, w, func(id dict.ID) bool { return id == subject }, func(*format.Record) bool {
		found = true
		return false
	})
	return found, err
}

// HasEdge reports whether a record of actor names subject, even if either account is hidden.
func (s *edges) HasEdge(k kinds.Kind, actor, subject dict.ID) (bool, error) {
	if actor == dict.None || subject == dict.None {
		return false, nil
	}
	return read.HasEdge(s.r, s.source.Layout, k, actor, subject)
}
