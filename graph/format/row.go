package format

import (
	"encoding/binary"
	"errors"
	"slices"

	"skein.blue/intern/dict"
)

// A Row holds the members of a reverse set; or, once its members were spilled into
// containers, the newest changes to them. On disk it is empty, or
//
//	uvarint 2 × d, list of the other members        the members; d: of the first
//	uvarint 2 × generation + 1, uvarint n, list of n removed, list of members
//
// A list has ids, ascending. The first is its difference to the id of the set's subject
// (zigzag uvarint), which is short because both namespaces draw ids from the same shard. Each
// other is its difference to the previous one (uvarint, at least 1). Nearly all rows have the
// first form; there, the first member's difference d is below 2^61.
//
// A stored row and a merge operand have the same form, and the last write to a member wins.
// Removed members are kept until a fold includes the oldest value. If the generation is not 0,
// they are kept forever: the set has containers, which the row overrides. The generation
// grows with every spill, so a container is unchanged while the row has the same generation.
type Row struct {
	subject    uint64
	Generation uint64
	Removed    []byte // a list
	Members    []byte // a list
	shift      int    // of Members: its first difference is shifted by this many bits
}

var errRow = errors.New("format: malformed set row")

// ParseRow splits the row of a subject's set into its lists.
func ParseRow(subject dict.ID, v []byte) (r Row, err error) {
	r.subject = uint64(subject)
	if len(v) == 0 || v[0]&1 == 0 {
		r.Members, r.shift = v, 1
		return r, nil
	}
	head, w := binary.Uvarint(v)
	if w <= 0 {
		return r, errRow
	}
	v = v[w:]
	n, w := binary.Uvarint(v)
	if w <= 0 {
		return r, errRow
	}
	r.Generation, v = head>>1, v[w:]
	end := 0
	for range n {
		_, w := binary.Uvarint(v[end:])
		if w <= 0 {
			return r, errRow
		}
		end += w
	}
	r.Removed, r.Members = v[:end], v[end:]
	return r, nil
}

// AppendMembers appends the members to dst.
func (r *Row) AppendMembers(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Members, r.shift)
}

// AppendRemoved appends the removed to dst.
func (r *Row) AppendRemoved(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Removed, 0)
}

// Has reports whether id is a member.
func (r *Row) Has(id uint64) bool { return listHas(r.subject, r.Members, r.shift, id) }

// HasRemoved reports whether id is among the removed.
func (r *Row) HasRemoved(id uint64) bool { return listHas(r.subject, r.Removed, 0, id) }

// appendList appends the ids of a list to dst.
func appendList(dst []uint64, subject uint64, list []byte, shift int) ([]uint64, error) {
	if len(list) == 0 {
		return dst, nil
	}
	d, w := binary.Uvarint(list)
	if w <= 0 {
		return dst, errRow
	}
	id := subject + dict.Unzigzag(d>>shift)
	dst = append(dst, id)
	for list = list[w:]; len(list) > 0; {
		d, w := Uvarint(list)
		if w <= 0 || d == 0 || id+d < id {
			return dst, errRow
		}
		list = list[w:]
		id += d
		dst = append(dst, id)
	}
	return dst, nil
}

// listHas reports whether id is in a list. It reads no further than id.
func listHas(subject uint64, list []byte, shift int, id uint64) bool {
	d, w := binary.Uvarint(list)
	if w <= 0 {
		return false
	}
	at := subject + dict.Unzigzag(d>>shift)
	for list = list[w:]; at < id && len(list) > 0; {
		d, w := Uvarint(list)
		if w <= 0 {
			return false
		}
		at += d
		list = list[w:]
	}
	return at == id
}

// encodeList appends the list of ascending ids.
func encodeList(dst []byte, subject uint64, ids []uint64, shift int) []byte {
	for i, id := range ids {
		if i == 0 {
			dst = binary.AppendUvarint(dst, dict.Zigzag(id-subject)<<shift)
		} else {
			dst = binary.AppendUvarint(dst, id-ids[i-1])
		}
	}
	return dst
}

// AppendRow appends a row or an operand. Both lists ascend, and are disjoint.
func AppendRow(dst []byte, subject dict.ID, generation uint64, removed, members []uint64) []byte {
	of := uint64(subject)
	if generation == 0 && len(removed) == 0 && (len(members) == 0 || dict.Zigzag(members[0]-of) < 1<<61) {
		return encodeList(dst, of, members, 1)
	}
	dst = binary.AppendUvarint(dst, generation<<1|1)
	dst = binary.AppendUvarint(dst, uint64(len(removed)))
	dst = encodeList(dst, of, removed, 0)
	return encodeList(dst, of, members, 0)
}

// entry is the state of one member in one value.
type entry struct {
	id      uint64
	age     uint32
	present bool
}

// rowFolder is the scratch of a fold.
type rowFolder struct {
	ids            []uint64
	entries, other []entry
	removed        []uint64
	members        []uint64
}

// read appends the entries of v to dst, ascending by id.
func (f *rowFolder) read(dst []entry, subject dict.ID, v []byte, age uint32) (out []entry, generation uint64, err error) {
	r, err := ParseRow(subject, v)
	if err != nil {
		return dst, 0, err
	}
	start := len(dst)
	for _, present := range []bool{false, true} {
		if present {
			f.ids, err = r.AppendMembers(f.ids[:0])
		} else {
			f.ids, err = r.AppendRemoved(f.ids[:0])
		}
		if err != nil {
			return dst, 0, err
		}
		for _, id := range f.ids {
			dst = append(dst, entry{id, age, present})
		}
	}
	if len(r.Removed) > 0 || !slices.IsSortedFunc(dst[start:], compareEntries) {
		slices.SortFunc(dst[start:], compareEntries)
	}
	for i := start + 1; i < len(dst); i++ {
		if dst[i].id == dst[i-1].id { // a member is removed, or present, or listed twice
			return dst, 0, errRow
		}
	}
	return dst, r.Generation, nil
}

func compareEntries(x, y entry) int {
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

// fold appends the row that values, oldest first, fold to, and returns the number of its ids.
// The oldest value is usually the largest, so the others are sorted first and merged into it.
func (f *rowFolder) fold(dst []byte, subject dict.ID, values [][]byte, base bool) (out []byte, n int, err error) {
	f.entries, f.other = f.entries[:0], f.other[:0]
	var generation uint64
	for age, v := range values {
		var g uint64
		if age == 0 {
			f.entries, g, err = f.read(f.entries, subject, v, 0)
		} else {
			f.other, g, err = f.read(f.other, subject, v, uint32(age))
		}
		if err != nil {
			return nil, 0, err
		}
		generation = max(generation, g)
	}
	if len(values) > 2 {
		slices.SortFunc(f.other, compareEntries)
	}
	f.removed, f.members = f.removed[:0], f.members[:0]
	old, other := f.entries, f.other
	for len(old) > 0 || len(other) > 0 {
		var w entry
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
	return AppendRow(dst, subject, generation, f.removed, f.members), len(f.members) + len(f.removed), nil
}
