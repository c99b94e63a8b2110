package write

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// maxKeptRecords bounds the records, of 48 bytes, for which scratch memory is kept, so that one
// actor with millions of records does not keep that memory allocated forever.
const maxKeptRecords = 200_000

// manySubjects is the phase that decides which entries change if records can name several subjects
// (kinds.Kind.IsMany). Until then such a record has several changes: a deletion, which removes all of its
// subjects, and then a put for each of its new ones. The phase compares these with the stored entries, and
// replaces them with the changes that remain: the deletion of an entry, or the put of a new one.
type manySubjects struct {
	out     []change
	records []format.Record // of an actor and kind, live
	subject []dict.ID       // of one record
	lost    []dict.ID       // subjects that records of the actor stop naming
}

// settle does so among all changes, and sets kept and lone in those that remain. No set tells which of their
// edges have one record, so every deletion reads all records of its actor and kind, unless that is too much.
func (m *manySubjects) settle(tx kv.Txn, all []change, s *searches) ([]change, error) {
	first, _ := slices.BinarySearchFunc(all, kinds.FirstMany, func(c change, k kinds.Kind) int { return cmp.Compare(c.kind, k) })
	if first == len(all) {
		return all, nil
	}
	m.out = m.out[:0]
	for one := range sets.Runs(all[first:], sameKindAndActor) {
		if !one[0].kind.IsMany() { // they follow
			m.out = append(m.out, one...)
			continue
		}
		m.records, m.lost = m.records[:0], m.lost[:0]
		from := len(m.out)
		if slices.ContainsFunc(one, func(c change) bool { return !c.fresh }) {
			if err := m.read(s.reader(tx, one[0].actor), one[0].kind, one[0].actor); errors.Is(err, ErrFar) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("graph: reading records: %w", err)
			}
		}
		for record := range sets.Runs(one, func(x, y change) bool { return compareChanges(&x, &y) == 0 }) {
			m.record(record)
		}
		m.lose(m.out[from:])
	}
	if cap(m.records) > maxKeptRecords {
		m.records = nil
	}
	all = append(all[:first], m.out...)
	if cap(m.out) > maxKeptRecords {
		m.out = nil
	}
	return all, nil
}

// read reads the live records of an actor and kind.
func (m *manySubjects) read(tx kv.Reader, kind kinds.Kind, actor dict.ID) error {
	return read.Records(tx, kind, actor, func(r *format.Record) bool {
		m.records = append(m.records, *r)
		m.records[len(m.records)-1].Path.Raw = bytes.Clone(r.Path.Raw)
		return true
	})
}

// record appends the changes of one record's entries, given its deletion, if it has one, and its puts.
func (m *manySubjects) record(changes []change) {
	c := changes[0]
	replaces := c.delete
	m.subject = m.subject[:0]
	for i := range changes {
		if !changes[i].delete && changes[i].new != dict.None {
			m.subject = append(m.subject, changes[i].new)
		}
	}
	slices.Sort(m.subject)
	puts := slices.Compact(m.subject)
	at, _ := slices.BinarySearchFunc(m.records, c.path, func(r format.Record, q format.Path) int { return format.ComparePaths(r.Path, q) })
	c.fresh, c.subject, c.new = true, -1, dict.None
	put := func(subject dict.ID) {
		n := c
		n.delete, n.new = false, subject
		m.out = append(m.out, n)
	}
	for ; at < len(m.records) && format.ComparePaths(m.records[at].Path, c.path) == 0; at++ {
		stored := m.records[at].Subject
		for len(puts) > 0 && puts[0] < stored {
			put(puts[0])
			puts = puts[1:]
		}
		switch {
		case len(puts) > 0 && puts[0] == stored:
			puts = puts[1:] // it stays
		case replaces:
			n := c
			n.delete, n.existed, n.old = true, true, stored
			m.out = append(m.out, n)
			m.lost = append(m.lost, stored)
			m.records[at].Flags = format.Removed
		}
	}
	for _, subject := range puts {
		put(subject)
	}
}

// lose sets kept and lone in changes of an actor and kind that delete entries.
func (m *manySubjects) lose(changes []change) {
	if len(m.lost) == 0 {
		return
	}
	slices.Sort(m.lost)
	m.lost = slices.Compact(m.lost)
	for i := range m.records {
		if r := &m.records[i]; r.Flags == 0 {
			if at, found := slices.BinarySearch(m.lost, r.Subject); found {
				m.lost = slices.Delete(m.lost, at, at+1)
			}
		}
	}
	for i := range changes {
		if c := &changes[i]; c.loses() {
			_, c.lone = slices.BinarySearch(m.lost, c.old)
			c.kept = !c.lone
		}
	}
}

// deletionFirst orders two changes of one operation: a snapshot's record deletes the stored subjects first.
func deletionFirst(x, y change) int {
	switch {
	case x.delete == y.delete:
		return 0
	case x.delete:
		return -1
	}
	return 1
}
