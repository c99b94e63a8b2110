package format

import (
	"encoding/binary"
	"slices"

	"skein.blue/intern/dict"
)

// RowMax is the most members that a row holds by default. The members of larger sets are in leaves, and
// have dates.
const RowMax = 2048

// A Row holds the members of a reverse set, or, once its members were spilled into
// leaves, the newest changes to them. A leaf is a row, too. On disk it is empty, or
//
//	uvarint 2 × d, list of the other members        the members; d: of the first
//	uvarint 2 × generation + 1, uvarint n, list of n removed, list of members
//	0x80 0x00, uvarint m, list of m members, m × date(4, LE)
//	0x81 0x00, uvarint generation, uvarint n, list of n removed, uvarint m, list of m members, m × date
//	0x82 0x00, uvarint n, list of n undated members, one of the first two forms
//
// The third and fourth forms have dates, the fifth names the members that are Undated; all others of forms without dates are OneRecord. The
// first two bytes of the last three are numbers in a longer form than needed, which AppendUvarint never writes.
//
// A list has ids, ascending. The first is its difference to the id of the set's subject
// (zigzag uvarint), which is short because both namespaces draw ids from the same shard. Each
// other is its difference to the previous one (uvarint, at least 1). Nearly all rows have the
// first form; there, the first member's difference d is below 2^61.
//
// The date of a member says what is known of its records of the edge (dates.go). A member that is added while it is a member
// already is Undated: it may have several records. It stays so until it is removed. Operands have dates, and so do
// leaves, and rows above leaves; other rows lose them in the fold with the oldest value, all but that a member is Undated.
//
// A stored row and a merge operand have the same form, and the last write to a member wins. A member that is both removed and present was first removed,
// and then added: what lies below says nothing of it.
// An operand with a generation comes from a spill, and replaces the row: older values of it no longer count.
// Removed members are kept until a fold includes the oldest value. If the generation is not 0,
// they are kept forever: the set has leaves, which the row overrides. The generation
// grows with every spill, so the leaves are unchanged while the row has the same generation.
type Row struct {
	subject    uint64
	Generation uint64
	Removed    []byte // a list
	Members    []byte // a list
	Dates      []byte // of the members, 4 bytes each; nil: see Undated
	Undated    []byte // a list, of members, if there are no Dates; all others are OneRecord
	shift      int    // of Members: its first difference is shifted by this many bits
}

var errRow error = dict.Malformed("format: malformed set row")

// ParseRow splits the row of a subject's set into its lists.
func ParseRow(subject dict.ID, v []byte) (r Row, err error) {
	r.subject = uint64(subject)
	if hasUndated(v) {
		if r.Undated, v, err = cutList(v[2:]); err != nil || len(r.Undated) == 0 || isDated(v) || hasUndated(v) {
			return r, errRow
		}
	}
	dated := isDated(v)
	if !dated && (len(v) == 0 || v[0]&1 == 0) {
		r.Members, r.shift = v, 1
		return r, nil
	}
	removes := !dated || v[0] == datedChanges
	if dated {
		v = v[2:]
	}
	if removes {
		head, w := binary.Uvarint(v)
		if w <= 0 {
			return r, errRow
		}
		if r.Generation = head; !dated {
			r.Generation >>= 1
		}
		if r.Removed, v, err = cutList(v[w:]); err != nil {
			return r, err
		}
	}
	if r.Members = v; dated {
		m, w := binary.Uvarint(v)
		if w <= 0 || m > uint64(len(v)-w)/5 { // a member takes at least a byte, and its date four
			return r, errRow
		}
		cut := len(v) - 4*int(m)
		if r.Members, r.Dates = v[w:cut], v[cut:]; numbers(r.Members) != int(m) {
			return r, errRow
		}
	}
	return r, nil
}

// cutList cuts a list, and the count of its ids before it, from the front of v.
func cutList(v []byte) (list, rest []byte, err error) {
	n, w := binary.Uvarint(v)
	if w <= 0 {
		return nil, nil, errRow
	}
	v = v[w:]
	end := 0
	for range n {
		_, w := binary.Uvarint(v[end:])
		if w <= 0 {
			return nil, nil, errRow
		}
		end += w
	}
	return v[:end], v[end:], nil
}

// numbers returns how many numbers end in a list.
func numbers(list []byte) (n int) {
	for _, b := range list {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// The first bytes of the forms with dates, and of the form that names undated members; the second is 0.
const (
	datedMembers   = 0x80
	datedChanges   = 0x81
	undatedMembers = 0x82
)

func isDated(v []byte) bool {
	return len(v) > 1 && v[1] == 0 && (v[0] == datedMembers || v[0] == datedChanges)
}

func hasUndated(v []byte) bool { return len(v) > 1 && v[1] == 0 && v[0] == undatedMembers }

// isPlain reports whether a value has the first form, if it is not malformed.
func isPlain(v []byte) bool { return !hasUndated(v) && !isDated(v) && (len(v) == 0 || v[0]&1 == 0) }

// AppendMembers appends the members to dst.
func (r *Row) AppendMembers(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Members, r.shift)
}

// AppendRemoved appends the removed to dst.
func (r *Row) AppendRemoved(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Removed, 0)
}

// AppendDates appends the dates of the members, which AppendMembers returned.
func (r *Row) AppendDates(dst []uint32, members []uint64) ([]uint32, error) {
	if r.Dates != nil {
		for i := range members {
			dst = append(dst, binary.LittleEndian.Uint32(r.Dates[4*i:]))
		}
		return dst, nil
	}
	start := len(dst)
	for range members {
		dst = append(dst, OneRecord)
	}
	if len(r.Undated) == 0 {
		return dst, nil
	}
	undated, err := appendList(nil, r.subject, r.Undated, 0)
	for _, id := range undated {
		at, found := slices.BinarySearch(members, id)
		if !found {
			return dst, errRow
		}
		dst[start+at] = Undated
	}
	return dst, err
}

// Date returns the date of a member; found is false if the row does not have it.
func (r *Row) Date(id uint64) (date uint32, found bool) {
	at, found := listFind(r.subject, r.Members, r.shift, id)
	switch {
	case !found:
		return 0, false
	case r.Dates != nil:
		return binary.LittleEndian.Uint32(r.Dates[4*at:]), true
	}
	if _, undated := listFind(r.subject, r.Undated, 0, id); undated {
		return Undated, true
	}
	return OneRecord, true
}

// HasRemoved reports whether id is among the removed.
func (r *Row) HasRemoved(id uint64) bool {
	_, found := listFind(r.subject, r.Removed, 0, id)
	return found
}

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

// listFind returns the place of id in a list. It reads no further than id.
func listFind(subject uint64, list []byte, shift int, id uint64) (place int, found bool) {
	d, w := binary.Uvarint(list)
	if w <= 0 {
		return 0, false
	}
	at := subject + dict.Unzigzag(d>>shift)
	for list = list[w:]; at < id && len(list) > 0; place++ {
		d, w := Uvarint(list)
		if w <= 0 {
			return 0, false
		}
		at += d
		list = list[w:]
	}
	return place, at == id
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

// AppendRow appends a row, a leaf or an operand. Both lists ascend. dates are those of the members; nil: all are OneRecord.
func AppendRow(dst []byte, subject dict.ID, generation uint64, removed, members []uint64, dates []uint32) []byte {
	of := uint64(subject)
	if slices.ContainsFunc(dates, func(d uint32) bool { return d < OneRecord }) {
		if generation == 0 && len(removed) == 0 {
			dst = append(dst, datedMembers, 0)
		} else {
			dst = binary.AppendUvarint(append(dst, datedChanges, 0), generation)
			dst = binary.AppendUvarint(dst, uint64(len(removed)))
			dst = encodeList(dst, of, removed, 0)
		}
		dst = encodeList(binary.AppendUvarint(dst, uint64(len(members))), of, members, 0)
		for _, d := range dates {
			dst = binary.LittleEndian.AppendUint32(dst, d)
		}
		return dst
	}
	if slices.Contains(dates, Undated) {
		var undated []uint64
		for i, d := range dates {
			if d == Undated {
				undated = append(undated, members[i])
			}
		}
		dst = binary.AppendUvarint(append(dst, undatedMembers, 0), uint64(len(undated)))
		dst = encodeList(dst, of, undated, 0)
	}
	if generation == 0 && len(removed) == 0 && (len(members) == 0 || dict.Zigzag(members[0]-of) < 1<<61) {
		return encodeList(dst, of, members, 1)
	}
	dst = binary.AppendUvarint(dst, generation<<1|1)
	dst = binary.AppendUvarint(dst, uint64(len(removed)))
	dst = encodeList(dst, of, removed, 0)
	return encodeList(dst, of, members, 0)
}

// Over merges the changes of a row with a leaf below it: the members that are left, and their dates. All lists ascend; nil for the dates of a leaf
// means that all are OneRecord. It appends to ids and to their dates.
func Over(ids []uint64, dates []uint32, removed, members []uint64, of []uint32, leaf []uint64, ofLeaf []uint32) ([]uint64, []uint32) {
	for len(members) > 0 || len(leaf) > 0 {
		id := ^uint64(0)
		if len(members) > 0 {
			id = members[0]
		}
		inLeaf, date := len(leaf) > 0 && leaf[0] <= id, uint32(OneRecord)
		if inLeaf {
			if id, leaf = leaf[0], leaf[1:]; ofLeaf != nil {
				date, ofLeaf = ofLeaf[0], ofLeaf[1:]
			}
		}
		for len(removed) > 0 && removed[0] < id {
			removed = removed[1:]
		}
		gone := len(removed) > 0 && removed[0] == id
		if len(members) > 0 && members[0] == id {
			if !inLeaf || gone {
				date = of[0]
			} else {
				date = Undated
			}
			members, of = members[1:], of[1:]
		} else if gone {
			continue
		}
		ids, dates = append(ids, id), append(dates, date)
	}
	return ids, dates
}
