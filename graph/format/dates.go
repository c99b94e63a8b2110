package format

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// The members of a set that has containers have dates, so that a window on a large set, or its order
// by time, does not have to read the records of every member. A date is the second since 1970 of the
// member's only record of the edge. It is Undated for a member
//
//   - with several records, unless all are of one second;
//   - that left the set and returned between two spills;
//   - whose record key is not a TID, or names a time outside of the range of dates.
//
// It is OneRecord for a member that had a single record when the row was first spilled: small rows keep no
// dates. The records of such a member, and of an undated one, have to be read. Any other date is exact: a record that
// is added to an edge adds the member to the row again, with its own date, and two different dates come
// to Undated. So a writer never has to know whether an edge has another record.
//
// Dates lie under keys of their own, beside the containers, in blocks of 4,096 ids. A block is
//
//	uvarint n | n × member(2, LE)   the removed, ascending
//	m × (member(2, LE), date(4, LE))  the present, ascending
//
// where a member is the low 12 bits of an id. Spills write operands of the same form. A member that is
// both removed and present was first removed, and then added. Removed members are kept until a fold
// includes the oldest value.

// Undated is the date of a member whose records have to be read.
const Undated = 1<<32 - 1

// OneRecord is the date of a member that has one record, whose own date is not stored.
const OneRecord = 1<<32 - 2

// DateOf returns the date of a record's path.
func DateOf(p Path) uint32 {
	const second = 1_000_000
	if !p.HasTime() || p.TID>>ClockBits >= OneRecord*second {
		return Undated
	}
	return uint32(p.TID >> ClockBits / second)
}

// InOneBucket reports whether all TIDs of a date lie in one bucket. It is false for Undated.
func InOneBucket(date uint32) bool {
	const second = 1_000_000
	first := uint64(date) * second << ClockBits
	last := (uint64(date)*second + second) << ClockBits
	return date != Undated && first>>BucketShift == (last-1)>>BucketShift
}

// DateShift is the number of low bits of an id that a block of dates has.
const DateShift = 12

// AppendDatesKey appends the prefix of the keys of a set's dates.
func AppendDatesKey(dst []byte, k kinds.Kind, subject dict.ID) []byte {
	return dict.AppendID(append(dst, KeyDates, byte(k)), subject)
}

// AppendDateBlock appends the rest of the key of the dates of a block of ids: the block of their
// container, and the next four bits.
func AppendDateBlock(dst []byte, block uint64) []byte {
	return append(AppendBlock(dst, block>>4), byte(block&15))
}

// ParseDatesKey returns the parts of the key of a block of dates.
func ParseDatesKey(key []byte) (k kinds.Kind, subject dict.ID, block uint64, err error) {
	if len(key) > 2 && key[0] == KeyDates {
		id, n := dict.ReadID(key[2:])
		if rest := key[2+n:]; n > 0 && (len(rest) == 4 || len(rest) == 8) && rest[len(rest)-1] < 16 {
			low := rest[len(rest)-1]
			if first, m := dict.ReadID(append(slices.Clone(rest[:len(rest)-1]), 0, 0)); m == len(rest)+1 {
				return kinds.Kind(key[1]), id, BlockOf(uint64(first))<<4 | uint64(low), nil
			}
		}
	}
	return 0, 0, 0, errDatesKey
}

var (
	errDatesKey       = errors.New("format: malformed key of dates")
	errDates    error = dict.Malformed("format: malformed dates")
)

// A Dated is a member of a block, and its date.
type Dated struct {
	Member uint16 // the low DateShift bits of the id
	Date   uint32
}

// AppendDates appends a block of dates, or an operand. Both lists ascend.
func AppendDates(dst []byte, removed []uint16, present []Dated) []byte {
	if len(removed) == 0 && len(present) == 0 {
		return dst
	}
	dst = appendMembers(binary.AppendUvarint(dst, uint64(len(removed))), removed)
	for _, d := range present {
		dst = binary.LittleEndian.AppendUint16(dst, d.Member)
		dst = binary.LittleEndian.AppendUint32(dst, d.Date)
	}
	return dst
}

// datedBytes is the size of a member with its date.
const datedBytes = 6

// SplitDates returns the two lists of a block of dates. They point into v.
func SplitDates(v []byte) (removed, present []byte, err error) {
	if len(v) == 0 {
		return nil, nil, nil
	}
	n, w := binary.Uvarint(v)
	if w <= 0 || n > 1<<DateShift || uint64(len(v)-w) < 2*n || (len(v)-w-2*int(n))%datedBytes != 0 {
		return nil, nil, errDates
	}
	cut := w + 2*int(n)
	return v[w:cut], v[cut:], nil
}

// EachDate calls each with the members of a block and their dates, which may be Undated or OneRecord. first is the first id of the block.
func EachDate(first uint64, v []byte, each func(id uint64, date uint32)) error {
	_, present, err := SplitDates(v)
	if err != nil {
		return err
	}
	last := -1
	for ; len(present) > 0; present = present[datedBytes:] {
		m := int(binary.LittleEndian.Uint16(present))
		if m <= last || m >= 1<<DateShift {
			return errDates
		}
		last = m
		each(first|uint64(m), binary.LittleEndian.Uint32(present[2:]))
	}
	return nil
}

// dateFolder is the scratch of a fold.
type dateFolder struct {
	entries []dateEntry
	removed []uint16
	present []Dated
}

// dateEntry is what one value says of a member. In a value, a removal comes before an addition.
type dateEntry struct {
	member uint16
	at     uint32 // 2 × the index of the value, + 1 if it adds the member
	date   uint32
}

func compareDateEntries(x, y dateEntry) int {
	return cmp.Or(cmp.Compare(x.member, y.member), cmp.Compare(x.at, y.at))
}

// fold appends the block that values, oldest first, fold to.
func (f *dateFolder) fold(dst []byte, values [][]byte, base bool) ([]byte, error) {
	f.entries = f.entries[:0]
	for age, v := range values {
		removed, present, err := SplitDates(v)
		if err != nil {
			return nil, err
		}
		for i := 0; i < len(removed); i += 2 {
			f.entries = append(f.entries, dateEntry{binary.LittleEndian.Uint16(removed[i:]), uint32(2 * age), 0})
		}
		for ; len(present) > 0; present = present[datedBytes:] {
			f.entries = append(f.entries, dateEntry{binary.LittleEndian.Uint16(present), uint32(2*age + 1), binary.LittleEndian.Uint32(present[2:])})
		}
	}
	if !slices.IsSortedFunc(f.entries, compareDateEntries) {
		slices.SortFunc(f.entries, compareDateEntries)
	}
	f.removed, f.present = f.removed[:0], f.present[:0]
	for list := f.entries; len(list) > 0; {
		m := list[0].member
		if m >= 1<<DateShift {
			return nil, errDates
		}
		removed, present, date := false, false, uint32(0)
		for i := 0; len(list) > 0 && list[0].member == m; i, list = i+1, list[1:] {
			switch e := list[0]; {
			case e.at%2 == 0:
				removed, present = true, false
			case present && e.date != date:
				date = Undated
			default:
				present, date = true, e.date
			}
		}
		if removed && !base {
			f.removed = append(f.removed, m)
		}
		if present {
			f.present = append(f.present, Dated{m, date})
		}
	}
	return AppendDates(dst, f.removed, f.present), nil
}
