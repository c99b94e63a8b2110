package ask

import (
	"errors"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// edges reads the sets in both directions, and the records behind them. Its methods are View's.
type edges struct{ *state }

// Subjects returns a forward set, such as follows: the subjects of actor's records in a window. It is empty if
// actor is hidden.
func (s *edges) Subjects(k kinds.Kind, actor dict.ID, w Window) (sets.Set, error) {
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
	scanned := read.RecordsNaming(s.r, k, actor, w, nil, func(r *format.Record) bool {
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

// ActorsIn returns the members of from that have an edge to subject by a record in a window.
func (s *edges) ActorsIn(k kinds.Kind, subject dict.ID, w Window, from sets.Set) (sets.Set, error) {
	var in sets.Collector
	if subject == dict.None {
		return in.Set(), nil
	}
	var actors []dict.ID
	for id := range from.All() {
		actors = append(actors, dict.ID(id))
	}
	err := s.eachNaming(k, subject, Window{}, func(int) Window { return w }, actors, func(i int, _ Path) bool {
		in.Add(uint64(actors[i]))
		return false
	})
	return in.Set(), err
}

// DatedIn divides the members of a reverse set, by their dates: those that have an edge to subject by a
// record in a window (in), and those whose records must be read to know it (unsure). For a set without
// leaves, all are unsure. The window must not be the one that includes everything.
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

// HasEdge reports whether a record of actor in a window names subject, even if either account is hidden.
func (s *edges) HasEdge(k kinds.Kind, actor, subject dict.ID, w Window) (has bool, err error) {
	switch {
	case actor == dict.None || subject == dict.None:
	case !w.All():
		err = read.RecordsNaming(s.r, k, actor, w, func(id dict.ID) bool { return id == subject }, func(*format.Record) bool { has = true; return false })
	case k.IsSelf():
		err = s.Live(k, []dict.ID{subject}, func(_ int, author, _ dict.ID) error { has = author == actor; return nil })
		if errors.Is(err, intern.ErrNoString) { // the record is newer than this state
			err = nil
		}
	default:
		var below bool
		if _, has, below, err = read.Date(s.r, s.source.Layout, k, subject, actor); below {
			s.source.sets.hasLeaves(k, subject, true)
		}
	}
	return has, err
}
