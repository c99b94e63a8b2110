package graph

import (
	"encoding/binary"
	"errors"
	"slices"

	"skein/intern"
)

// A row holds the members of a reverse set, or the newest changes of one whose
// members were spilled into containers. On disk it is
//
//	list                              the members, or
//	0xfe  uvarint generation  uvarint n, list of n  list
//	                                  the removed, then the members
//	list: the first id (intern.AppendID), then the difference of each to the
//	one before it (uvarint, at least 1), ascending
//
// No id begins with 0xfe. A stored row and a merge operand have the same form,
// and the newest word on a member counts. Removed members are kept until a fold
// includes the oldest value, and for ever where the generation is not 0: then
// there are containers below, over which the row stands. The generation grows
// with every spill, so a container that was read under it is the same as long
// as the row says the same generation.
type row struct {
	generation uint64
	removed    []byte // lists
	members    []byte
}

const rowMark = 0xfe

var errRow = errors.New("graph: malformed set row")

// parseRow splits a row.
func parseRow(v []byte) (r row, err error) {
	if len(v) == 0 || v[0] != rowMark {
		r.members = v
		return r, nil
	}
	v = v[1:]
	generation, w := binary.Uvarint(v)
	if w <= 0 {
		return r, errRow
	}
	v = v[w:]
	n, w := binary.Uvarint(v)
	if w <= 0 {
		return r, errRow
	}
	r.generation, v = generation, v[w:]
	end := 0
	if n > 0 {
		if _, end = intern.ReadID(v); end == 0 {
			return r, errRow
		}
		for range n - 1 {
			_, w := binary.Uvarint(v[end:])
			if w <= 0 {
				return r, errRow
			}
			end += w
		}
	}
	r.removed, r.members = v[:end], v[end:]
	return r, nil
}

// appendList decodes a list onto dst.
func appendList(dst []uint64, list []byte) ([]uint64, error) {
	if len(list) == 0 {
		return dst, nil
	}
	first, n := intern.ReadID(list)
	if n == 0 {
		return dst, errRow
	}
	id := uint64(first)
	dst = append(dst, id)
	for list = list[n:]; len(list) > 0; {
		var d uint64
		if list[0] < 0x80 {
			d, list = uint64(list[0]), list[1:]
		} else {
			var w int
			if d, w = binary.Uvarint(list); w <= 0 {
				return dst, errRow
			}
			list = list[w:]
		}
		if d == 0 || id+d < id {
			return dst, errRow
		}
		id += d
		dst = append(dst, id)
	}
	return dst, nil
}

// listHas reports whether id is in a list. It stops where the list has gone
// past it.
func listHas(list []byte, id uint64) bool {
	if len(list) == 0 {
		return false
	}
	first, n := intern.ReadID(list)
	at := uint64(first)
	for list = list[n:]; at < id && len(list) > 0; {
		d, w := binary.Uvarint(list)
		if w <= 0 {
			return false
		}
		at += d
		list = list[w:]
	}
	return n > 0 && at == id
}

// encodeList appends the list of ids, which ascend.
func encodeList(dst []byte, ids []uint64) []byte {
	for i, id := range ids {
		if i == 0 {
			dst = intern.AppendID(dst, intern.ID(id))
		} else {
			dst = binary.AppendUvarint(dst, id-ids[i-1])
		}
	}
	return dst
}

// appendRow appends a row or operand. Both lists ascend, and are disjoint.
func appendRow(dst []byte, generation uint64, removed, members []uint64) []byte {
	if generation > 0 || len(removed) > 0 {
		dst = binary.AppendUvarint(append(dst, rowMark), generation)
		dst = binary.AppendUvarint(dst, uint64(len(removed)))
		dst = encodeList(dst, removed)
	}
	return encodeList(dst, members)
}

// word is what one value says of one member.
type word struct {
	id      uint64
	age     uint32
	present bool
}

// rowFolder is the scratch of a fold.
type rowFolder struct {
	ids          []uint64
	words, other []word
	removed      []uint64
	members      []uint64
}

// read appends what v says to dst, in the order of the ids.
func (f *rowFolder) read(dst []word, v []byte, age uint32) (out []word, generation uint64, err error) {
	r, err := parseRow(v)
	if err != nil {
		return dst, 0, err
	}
	start := len(dst)
	for i, list := range [][]byte{r.removed, r.members} {
		if f.ids, err = appendList(f.ids[:0], list); err != nil {
			return dst, 0, err
		}
		for _, id := range f.ids {
			dst = append(dst, word{id, age, i == 1})
		}
	}
	if len(r.removed) > 0 {
		slices.SortFunc(dst[start:], compareWords)
	}
	return dst, r.generation, nil
}

func compareWords(x, y word) int {
	switch {
	case x.id != y.id:
		if x.id < y.id {
			return -1
		}
		return 1
	case x.age < y.age:
		return -1
	case x.age > y.age:
		return 1
	}
	return 0
}

// fold appends what values, oldest first, come to, and returns how many ids the
// result holds. The oldest value is usually the largest: the others are sorted
// by themselves and merged into it.
func (f *rowFolder) fold(dst []byte, values [][]byte, base bool) (out []byte, n int, err error) {
	f.words, f.other = f.words[:0], f.other[:0]
	var generation uint64
	for age, v := range values {
		var g uint64
		if age == 0 {
			f.words, g, err = f.read(f.words, v, 0)
		} else {
			f.other, g, err = f.read(f.other, v, uint32(age))
		}
		if err != nil {
			return nil, 0, err
		}
		generation = max(generation, g)
	}
	if len(values) > 2 {
		slices.SortFunc(f.other, compareWords)
	}
	f.removed, f.members = f.removed[:0], f.members[:0]
	old, other := f.words, f.other
	for len(old) > 0 || len(other) > 0 {
		var w word
		if len(other) == 0 || len(old) > 0 && old[0].id < other[0].id {
			w, old = old[0], old[1:]
		} else {
			if len(old) > 0 && old[0].id == other[0].id {
				old = old[1:]
			}
			for w, other = other[0], other[1:]; len(other) > 0 && other[0].id == w.id; other = other[1:] {
				w = other[0]
			}
		}
		switch {
		case w.present:
			f.members = append(f.members, w.id)
		case !base || generation > 0:
			f.removed = append(f.removed, w.id)
		}
	}
	return appendRow(dst, generation, f.removed, f.members), len(f.members) + len(f.removed), nil
}
