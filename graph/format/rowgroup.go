package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A row group has the rows of 16 posts with neighbouring ids: posts that were first liked or reposted at about
// the same time. Most of them have few likers, and a key, its place in a table and its bits in a filter would
// take more bytes than the row (docs/decisions/0031).
//
// Only the sets of likers and reposters lie in groups (HasGroups), and only in a store with one writer. Accounts
// have longer rows, and the numbers of configured kinds do not tell what their subjects are.
//
// A group is, ascending by subject,
//
//	uvarint 2 × bytes of the row      | row    of the subject after the last one, or of the first in the group
//	uvarint 2 × bytes of the row + 1, the id's lowest four bits (1) | row    of any other
//
// An operand and a stored group have the same form. The rows of each subject fold as rows do. No row is empty: in
// the fold with the oldest value, the subjects of empty rows disappear. A row spills into containers under
// the set's own key. Then an operand that has a generation takes the row's place: its fold ignores all
// older rows of the subject.
const rowGroupBits = 4

// rowsInGroup is the number of subjects of a group.
const rowsInGroup = 1 << rowGroupBits

var errRowGroup = errors.New("format: malformed group of rows")

// HasGroups reports whether the rows of a kind's sets lie in groups, in stores with one writer.
func HasGroups(k kinds.Kind) bool { return k == kinds.Like || k == kinds.Repost }

// Grouped reports whether the rows of a kind's sets lie in groups, in this store.
func (l Layout) Grouped(k kinds.Kind) bool { return !l.Shared() && !l.Ungrouped && HasGroups(k) }

// AppendRowGroupKey appends the key of the group that has the row of a subject.
func AppendRowGroupKey(dst []byte, k kinds.Kind, subject dict.ID) []byte {
	return dict.AppendID(append(dst, KeyRows, byte(k)), subject&^(rowsInGroup-1))
}

// ParseRowGroupKey returns the kind of a group's sets, and the first subject that it can have.
func ParseRowGroupKey(key []byte) (k kinds.Kind, first dict.ID, err error) {
	if len(key) > 2 && key[0] == KeyRows && HasGroups(kinds.Kind(key[1])) {
		if id, n := dict.ReadID(key[2:]); n > 0 && len(key) == 2+n && id%rowsInGroup == 0 {
			return kinds.Kind(key[1]), id, nil
		}
	}
	return 0, 0, fmt.Errorf("format: key %x of a group of rows is malformed", key)
}

// A RowGroup is a group of rows while it is built.
type RowGroup struct {
	Value []byte
	next  int // the lowest bits of the id after the last subject
}

// Reset makes the group empty. It keeps the memory of Value.
func (g *RowGroup) Reset() { g.Value, g.next = g.Value[:0], 0 }

// Add appends a row. Its subject comes after all others; the caller has found that it belongs to the group.
func (g *RowGroup) Add(subject dict.ID, row []byte) {
	low := int(subject % rowsInGroup)
	head := uint64(len(row)) << 1
	if low == g.next {
		g.Value = binary.AppendUvarint(g.Value, head)
	} else {
		g.Value = append(binary.AppendUvarint(g.Value, head|1), byte(low))
	}
	g.Value = append(g.Value, row...)
	g.next = low + 1
}

// cutRow cuts the first row of a group. next is the lowest bits of the id after the last subject.
func cutRow(v []byte, next int) (low int, row, rest []byte, err error) {
	head, w := Uvarint(v)
	if w <= 0 {
		return 0, nil, nil, errRowGroup
	}
	v, low = v[w:], next
	if head&1 != 0 {
		if len(v) == 0 || int(v[0]) <= next {
			return 0, nil, nil, errRowGroup
		}
		low, v = int(v[0]), v[1:]
	}
	n := head >> 1
	if low >= rowsInGroup || n == 0 || n > uint64(len(v)) {
		return 0, nil, nil, errRowGroup
	}
	return low, v[:n:n], v[n:], nil
}

// EachRow calls each with the subjects and the rows of a group. first is the first subject that it can have.
func EachRow(first dict.ID, group []byte, each func(subject dict.ID, row []byte) error) error {
	for next := 0; len(group) > 0; {
		low, row, rest, err := cutRow(group, next)
		if err == nil {
			err = each(first+dict.ID(low), row)
		}
		if err != nil {
			return err
		}
		next, group = low+1, rest
	}
	return nil
}

// RowIn returns the row of a subject in its group. It is empty if the group has none.
func RowIn(group []byte, subject dict.ID) ([]byte, error) {
	want := int(subject % rowsInGroup)
	for next := 0; len(group) > 0; {
		low, row, rest, err := cutRow(group, next)
		if err != nil {
			return nil, err
		}
		if low == want {
			return row, nil
		}
		if low > want {
			break
		}
		next, group = low+1, rest
	}
	return nil, nil
}

// rowGroupFolder is the scratch of a fold of groups.
type rowGroupFolder struct {
	rows [rowsInGroup][][]byte
	out  RowGroup
	row  []byte
}

// foldGroup appends the group that values, oldest first, fold to, and returns the number of ids of its largest row. It does not
// decode a row that folds to itself.
func (f *Folder) foldGroup(dst, key []byte, values [][]byte, base bool) (out []byte, largest int, err error) {
	k, first, err := ParseRowGroupKey(key)
	if err != nil {
		return nil, 0, err
	}
	g := &f.groups
	for i := range g.rows {
		g.rows[i] = g.rows[i][:0]
	}
	for _, v := range values {
		for next := 0; len(v) > 0; {
			low, row, rest, err := cutRow(v, next)
			if err != nil {
				return nil, 0, err
			}
			g.rows[low] = append(g.rows[low], row)
			next, v = low+1, rest
		}
	}
	g.out = RowGroup{Value: dst}
	for i, rows := range g.rows {
		if len(rows) == 0 {
			continue
		}
		subject := first + dict.ID(i)
		if len(rows) == 1 && isPlain(rows[0]) { // as most rows of a group are
			g.out.Add(subject, rows[0])
			largest = max(largest, numbers(rows[0]))
			continue
		}
		var n int
		if g.row, n, err = f.rows.fold(g.row[:0], k, subject, rows, base); err != nil {
			return nil, 0, err
		}
		if len(g.row) > 0 {
			g.out.Add(subject, g.row)
		}
		largest = max(largest, n)
	}
	return g.out.Value, largest, nil
}
