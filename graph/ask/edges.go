package ask

import (
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/internal/kv"
)

// Subjects returns the subjects that actor has an edge to: a forward set, such
// as follows. That of a hidden account is empty. Hidden accounts are in it.
func (s *View) Subjects(k kinds.Kind, actor dict.ID) (idset.Set, error) {
	return s.SubjectsIn(k, actor, Window{})
}

// A Window is a span of time.
type Window = read.Window

// SubjectsIn is Subjects by the records in a window.
func (s *View) SubjectsIn(k kinds.Kind, actor dict.ID, w Window) (idset.Set, error) {
	ids, err := s.AppendSubjects(nil, k, actor, w)
	return idset.FromUnsorted(ids), err
}

// AppendSubjects appends a forward set, by the records in a window, to dst, in no order;
// a subject that several records name may be there several times.
func (s *View) AppendSubjects(dst []uint64, k kinds.Kind, actor dict.ID, w Window) ([]uint64, error) {
	if actor == dict.None || s.IsHidden(actor) {
		return dst, nil
	}
	return read.AppendSubjects(s.r, k, actor, w, dst)
}

// AppendRecorded appends the subjects that an actor's records name to dst, in no order,
// whether or not the actor is active.
func (s *View) AppendRecorded(dst []uint64, k kinds.Kind, actor dict.ID) ([]uint64, error) {
	return read.AppendSubjects(s.r, k, actor, Window{}, dst)
}

// ActorsIn returns who of a reverse set has an edge to subject by a record in a window.
// The members' records are read, those of so many members as from, in no order.
func (s *View) ActorsIn(k kinds.Kind, subject dict.ID, w Window, from idset.Set) (idset.Set, error) {
	var ids []uint64
	for actor := range from.All() {
		in, err := s.HasEdgeIn(k, dict.ID(actor), subject, w)
		if err != nil {
			return idset.Set{}, err
		}
		if in {
			ids = append(ids, actor)
		}
	}
	return idset.FromList(ids), nil
}

// HasEdgeIn reports whether a live record of actor in a window names subject, whatever the
// state of the two accounts.
func (s *View) HasEdgeIn(k kinds.Kind, actor, subject dict.ID, w Window) (found bool, err error) {
	if w.All() {
		return s.HasEdge(k, actor, subject)
	}
	if actor == dict.None || subject == dict.None {
		return false, nil
	}
	err = read.RecordsIn(s.r, k, actor, w, func(r *format.Record) bool {
		found = found || r.Subject == subject
		return !found
	})
	return found, err
}

// HasEdge reports whether a live record of actor names subject, whatever the
// state of the two accounts.
func (s *View) HasEdge(k kinds.Kind, actor, subject dict.ID) (bool, error) {
	if actor == dict.None || subject == dict.None {
		return false, nil
	}
	return read.HasEdge(s.r, s.source.Layout, k, actor, subject)
}

// SomeAccounts returns up to n active accounts that the index has heard of, those that it met
// first: in a store that began live they are busy ones.
func (s *View) SomeAccounts(n int) (ids []dict.ID, err error) {
	prefix := []byte{format.KeyAccount}
	keys := 0
	err = s.r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		err := s.source.Layout.EachState(k, v, func(id dict.ID, _ format.RepoState) error {
			if len(ids) < n && !s.IsHidden(id) {
				ids = append(ids, id)
			}
			return nil
		})
		keys++
		return err == nil && len(ids) < n && keys < 4*n, err
	})
	if err != nil {
		return nil, fmt.Errorf("graph: looking for some accounts: %w", err)
	}
	return ids, nil
}
