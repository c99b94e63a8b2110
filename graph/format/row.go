package format

import (
	"encoding/binary"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// RowMax is the most members that a row holds by default. The members of larger sets are in containers, and
// have dates. Measured: above about 2,000 members, containers are smaller than a row.
const RowMax = 2048

// A Row holds the members of a reverse set; or, once its members were spilled into
// containers, the newest changes to them. On disk it is empty, or
//
//	uvarint 2 × d, list of the other members        the members; d: of the first
//	uvarint 2 × generation + 1, uvarint n, list of n removed, list of members
//	0x80 0x00, uvarint m, list of m members, m × date(4, LE)
//	0x81 0x00, uvarint generation, uvarint n, list of n removed, uvarint m, list of m members, m × date
//	0x82 0x00, uvarint n, list of n repeated members, one of the forms above
//
// The third and fourth forms have dates, the fifth names the repeated members. Their first two bytes are
// numbers in a longer form than needed, which AppendUvarint never writes.
//
// A list has ids, ascending. The first is its difference to the id of the set's subject
// (zigzag uvarint), which is short because both namespaces draw ids from the same shard. Each
// other is its difference to the previous one (uvarint, at least 1). Nearly all rows have the
// first form; there, the first member's difference d is below 2^61.
//
// A date is the second since 1970 of the member's only record; see dates.go. Operands have dates; a
// row without containers loses them in the fold with the oldest value. A row has one of the forms with
// dates if at least one of its dates is not Undated.
//
// A repeated member was added while it was a member already: it may have several records. A writer that
// deletes a record then has to look for others; a member that is not repeated has no other record. A
// member stays repeated until it is removed. Only the sets of HasRepeated have repeated members, and only
// while they have no containers: from then on, dates say the same (dates.go).
//
// A stored row and a merge operand have the same form, and the last write to a member wins. In an operand
// whose rows note repeated members, one that is both removed and present was first removed, and then added:
// it is not repeated, whatever lies below. A member
// has a date after a fold if all its entries there add it, with that date.
// An operand with a generation comes from a spill, and replaces the row: older values of it no longer count.
// Removed members are kept until a fold includes the oldest value. If the generation is not 0,
// they are kept forever: the set has containers, which the row overrides. The generation
// grows with every spill, so a container is unchanged while the row has the same generation.
type Row struct {
	subject    uint64
	Generation uint64
	Removed    []byte // a list
	Members    []byte // a list
	Dates      []byte // of the members, 4 bytes each; nil: all are Undated
	Repeated   []byte // a list, of members
	shift      int    // of Members: its first difference is shifted by this many bits
}

var errRow error = dict.Malformed("format: malformed set row")

// ParseRow splits the row of a subject's set into its lists.
func ParseRow(subject dict.ID, v []byte) (r Row, err error) {
	r.subject = uint64(subject)
	if hasRepeated(v) {
		if r.Repeated, v, err = cutList(v[2:]); err != nil || len(r.Repeated) == 0 {
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

// The first bytes of the forms with dates, and of the form with repeated members; the second is 0.
const (
	datedMembers    = 0x80
	datedChanges    = 0x81
	repeatedMembers = 0x82
)

func isDated(v []byte) bool {
	return len(v) > 1 && v[1] == 0 && (v[0] == datedMembers || v[0] == datedChanges)
}

func hasRepeated(v []byte) bool { return len(v) > 1 && v[1] == 0 && v[0] == repeatedMembers }

// isPlain reports whether a value has the first form, if it is not malformed.
func isPlain(v []byte) bool { return !hasRepeated(v) && !isDated(v) && (len(v) == 0 || v[0]&1 == 0) }

// HasRepeated reports whether the rows of a kind's sets note which members are repeated. Of records that can
// name several subjects, writers read all anyway; labels and hidden accounts have no records.
func HasRepeated(k kinds.Kind) bool { return k != kinds.Hidden && k < kinds.FirstMany && !k.IsLabel() }

// generationOf returns the generation of a row or an operand, 0 if it is malformed. Values with repeated members have none.
func generationOf(v []byte) uint64 {
	switch {
	case len(v) == 0 || v[0]&1 == 0:
		return 0
	case isDated(v):
		g, _ := binary.Uvarint(v[2:])
		return g
	}
	g, _ := binary.Uvarint(v)
	return g >> 1
}

// Date returns the date of the i-th member.
func (r *Row) Date(i int) uint32 {
	if r.Dates == nil {
		return Undated
	}
	return binary.LittleEndian.Uint32(r.Dates[4*i:])
}

// AppendMembers appends the members to dst.
func (r *Row) AppendMembers(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Members, r.shift)
}

// AppendRemoved appends the removed to dst.
func (r *Row) AppendRemoved(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Removed, 0)
}

// AppendRepeated appends the repeated members to dst.
func (r *Row) AppendRepeated(dst []uint64) ([]uint64, error) {
	return appendList(dst, r.subject, r.Repeated, 0)
}

// IsRepeated reports whether id is a repeated member.
func (r *Row) IsRepeated(id uint64) bool { return listHas(r.subject, r.Repeated, 0, id) }

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

// AppendRepeated appends the beginning of a row or an operand that has repeated members; AppendRow or
// AppendDatedRow has to append the rest, in which they are members.
func AppendRepeated(dst []byte, subject dict.ID, repeated []uint64) []byte {
	if len(repeated) == 0 {
		return dst
	}
	dst = append(dst, repeatedMembers, 0)
	dst = binary.AppendUvarint(dst, uint64(len(repeated)))
	return encodeList(dst, uint64(subject), repeated, 0)
}

// AppendDatedRow appends a row or an operand whose members have dates.
func AppendDatedRow(dst []byte, subject dict.ID, generation uint64, removed, members []uint64, dates []uint32) []byte {
	if !slices.ContainsFunc(dates, func(d uint32) bool { return d != Undated }) {
		return AppendRow(dst, subject, generation, removed, members)
	}
	of := uint64(subject)
	if generation == 0 && len(removed) == 0 {
		dst = append(dst, datedMembers, 0)
	} else {
		dst = append(dst, datedChanges, 0)
		dst = binary.AppendUvarint(dst, generation)
		dst = binary.AppendUvarint(dst, uint64(len(removed)))
		dst = encodeList(dst, of, removed, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(members)))
	dst = encodeList(dst, of, members, 0)
	for _, d := range dates {
		dst = binary.LittleEndian.AppendUint32(dst, d)
	}
	return dst
}
