package wire

import (
	"bytes"
	"strings"

	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// AppendSubjects appends the distinct subjects that a record names at the path of a kind, in the order of the
// record, as slices of the record. reason says why some were left out, or that there are none (Reason.IsAbsent).
//
// A kind without arrays has one subject, or a nil one if the record should name one and does not. A kind with
// arrays has at most kinds.MaxSubjects.
func AppendSubjects(dst [][]byte, k *kinds.Info, record []byte) (subjects [][]byte, reason Reason) {
	if k.Kind.IsSelf() { // whatever is in the record
		return dst, absent
	}
	s := search{k: k, all: dst, start: len(dst), c: Cursor{B: record}}
	s.inMap(k.To.Field)
	isMany := k.Kind.IsMany()
	switch {
	case s.c.Bad || s.c.I != len(record):
		s.all, s.reason = dst, BadRecord
	case len(s.all) > len(dst), isMany && s.reason != "":
		return s.all, s.reason
	case isMany, k.Optional && !s.there:
		return dst, absent
	case s.reason == "":
		s.reason = BadSubject
	}
	if !isMany {
		s.all = append(s.all, nil)
	}
	return s.all, s.reason
}

// search walks one record.
type search struct {
	c      Cursor
	k      *kinds.Info
	all    [][]byte // with the subjects from start on
	start  int
	there  bool // there is a value at the path
	reason Reason
}

// inMap searches the map at the cursor, to its end.
//
// A step with a question mark may be missing. If a record has a subject with and without it, the first counts, in the order of
// the record.
func (s *search) inMap(steps []string) {
	name, isOptional := strings.CutSuffix(steps[0], "?")
	name, elements, isArray := kinds.CutStep(name)
	c := &s.c
	seen := false
	for range c.Count(Map) {
		switch key := c.Text(); {
		case string(key) == name:
		case isOptional && string(key) == steps[1]:
			s.value(steps[2:])
			continue
		default:
			c.Skip()
			continue
		}
		if seen || c.I >= len(c.B) {
			c.Fail() // DAG-CBOR has no key twice
			return
		}
		seen = true
		switch {
		case !isArray:
			s.value(steps[1:])
		case c.B[c.I]>>5 != Array:
			c.Skip()
		default:
			for range c.Count(Array) {
				s.element(elements, steps[1:])
			}
		}
	}
}

// element searches the element of an array at the cursor, if it has the type.
func (s *search) element(of string, steps []string) {
	if c := &s.c; !c.Bad && c.I < len(c.B) && string(elementType(*c)) != of {
		c.Skip()
		return
	}
	s.value(steps)
}

// elementType returns the $type of the map at the cursor, nil if it is not a map, or has no text there.
func elementType(c Cursor) (found []byte) {
	if c.B[c.I]>>5 != Map {
		return nil
	}
	for key := range c.Fields {
		if string(key) == "$type" && c.I < len(c.B) && c.B[c.I]>>5 == Text {
			return c.Text()
		}
		c.Skip()
	}
	return nil
}

// value takes the value at the cursor as a subject if no steps are left, and searches it otherwise.
func (s *search) value(steps []string) {
	c := &s.c
	switch {
	case c.Bad || c.I >= len(c.B):
		c.Fail()
	case len(steps) > 0 && c.B[c.I]>>5 == Map:
		s.inMap(steps)
	case len(steps) == 0 && c.B[c.I]>>5 == Text:
		s.take(c.Text())
	default:
		if len(steps) == 0 && c.B[c.I] != null {
			if s.there = true; c.B[c.I]>>5 != Map && c.B[c.I]>>5 != Array {
				s.reason = s.reason.Or(BadSubject)
			}
		}
		c.Skip()
	}
}

// take takes a subject.
func (s *search) take(subject []byte) {
	s.there = true
	switch {
	case s.k.To.Form == kinds.ATURI && dict.IsSpaceURI(subject):
		s.reason = s.reason.Or(SpaceSubject)
		return
	case !s.k.To.Form.Valid(subject):
		s.reason = s.reason.Or(BadSubject)
		return
	}
	for _, other := range s.all[s.start:] {
		if bytes.Equal(other, subject) {
			return
		}
	}
	if n := len(s.all) - s.start; n == 1 && !s.k.Kind.IsMany() {
		return
	} else if n == kinds.MaxSubjects {
		s.reason = s.reason.Or(MoreSubjects)
		return
	}
	s.all = append(s.all, subject)
}

// maxRewrites bounds the updates and deletions of records that can name several subjects: each may remove
// kinds.MaxSubjects edges of each kind. The protocol allows 200 operations in a commit.
const maxRewrites = 300

// hasTooManyEdges reports whether the records of a commit make more edges than a message of its size may, or whether it
// updates and deletes more than maxRewrites records that may have named several subjects. Such a commit is damaged: its repo is
// fetched instead.
func (d *Decoder) hasTooManyEdges(m *Message, b *batch.Batch) bool {
	const few = 2 // kinds of a collection: an operation takes enough bytes for them
	n, rewrites := 0, 0
	for i := range d.ops {
		o := &d.ops[i]
		if o.of == nil || len(o.of.Kinds) <= few && !o.of.HasMany() {
			continue
		}
		if o.of.HasMany() && string(o.Action) != "create" {
			rewrites++
		}
		all, _ := d.subjects(o, b)
		for i := range all {
			for _, subject := range d.refs[all[i].from:all[i].to] {
				if !subject.IsEmpty() {
					n++
				}
			}
		}
	}
	return n > kinds.MostEdges(len(m.Ops)+len(m.Blocks)) || rewrites > maxRewrites
}
