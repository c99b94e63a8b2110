package graph

import (
	"bytes"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/graph/read"
	"skein/intern/dict"
	"skein/internal/idset"
)

// Subjects returns the subjects that actor has an edge to: a forward set, such
// as follows. That of a hidden account is empty. Hidden accounts are in it.
func (s *Snapshot) Subjects(k kinds.Kind, actor dict.ID) (idset.Set, error) {
	ids, err := s.AppendSubjects(nil, k, actor)
	return idset.FromUnsorted(ids), err
}

// AppendSubjects appends a forward set to dst, in no order; a subject that
// several records name may be there several times.
func (s *Snapshot) AppendSubjects(dst []uint64, k kinds.Kind, actor dict.ID) ([]uint64, error) {
	if actor == dict.None || s.IsHidden(actor) {
		return dst, nil
	}
	err := read.Records(s.r, k, actor, func(r *format.Record) bool {
		if r.Subject != dict.None {
			dst = append(dst, uint64(r.Subject))
		}
		return true
	})
	return dst, err
}

// Rkeys returns, for each of the subjects, the lowest record key under which a
// live record of actor names it, nil if none does, whatever the state of the
// accounts.
func (s *Snapshot) Rkeys(k kinds.Kind, actor dict.ID, subjects []dict.ID) ([][]byte, error) {
	rkeys := make([][]byte, len(subjects))
	if actor == dict.None {
		return rkeys, nil
	}
	index := make(map[dict.ID][]int, len(subjects))
	for i, id := range subjects {
		if id != dict.None {
			index[id] = append(index[id], i)
		}
	}
	var buf []byte
	err := read.Records(s.r, k, actor, func(r *format.Record) bool {
		for _, i := range index[r.Subject] {
			buf = r.Path.AppendRkey(buf[:0])
			if rkeys[i] == nil || bytes.Compare(buf, rkeys[i]) < 0 {
				rkeys[i] = bytes.Clone(buf)
			}
		}
		return true
	})
	return rkeys, err
}

// HasEdge reports whether a live record of actor names subject, whatever the
// state of the two accounts.
func (s *Snapshot) HasEdge(k kinds.Kind, actor, subject dict.ID) (bool, error) {
	if actor == dict.None || subject == dict.None {
		return false, nil
	}
	return read.HasEdge(s.r, s.s.layout, k, actor, subject)
}
