package format

import (
	"encoding/binary"
	"fmt"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A row group has the rows of 16 posts with neighbouring ids: posts that were first liked or reposted at about
// the same time. Most of them have few likers, and a key, its place in a table and its bits in a filter would
// take more bytes than the row (docs/decisions/0031).
//
// Only the rows of likers and reposters lie in groups (HasGroups). A store may have smaller groups (dict.Settings.Group). Accounts
// have longer rows, and the number of a configured kind does not say whether its subjects are posts.
//
// A group has the rows that are not empty, ascending by subject. Each is
//
//	uvarint 2 × bytes of the row, row
//	uvarint 2 × bytes of the row + 1, place (1), row
//
// A subject's place in the group is the lowest four bits of its id. The first form is for the place after that of the row
// before, and for a first row in place 0; the second form is for any other place.
//
// An operand and a stored group have the same form, and the rows of each subject fold as rows do. A row that is too large spills
// into leaves, which have keys of the set's own. The spill merges an empty row with a generation, which
// replaces all older rows of the subject (Row).
const rowGroupBits = 4

// rowsInGroup is the number of subjects of a group.
const rowsInGroup = 1 << rowGroupBits

var errRowGroup error = dict.Malformed("format: malformed row group")

// HasGroups reports whether the rows of a kind's sets lie in groups.
func HasGroups(k kinds.Kind) bool { return k == kinds.Like || k == kinds.Repost }

// ParseRowGroupKey returns the kind of a group's sets, and the first subject that it can have. The key may end with a partition.
func ParseRowGroupKey(key []byte) (k kinds.Kind, first dict.ID, err error) {
	if len(key) > 2 && key[0] == KeyRows && HasGroups(kinds.Kind(key[1])) {
		if id, n := dict.ReadID(key[2:]); n > 0 && len(key) <= 2+n+1 {
			return kinds.Kind(key[1]), id, nil
		}
	}
	return 0, 0, fmt.Errorf("format: key %x of a row group is malformed", key)
}

// A RowGroup is a row group while it is built.
type RowGroup struct {
	Value []byte
	next  int // the place after the last row
}

// Reset makes the group empty. It keeps the memory of Value.
func (g *RowGroup) Reset() { g.Value, g.next = g.Value[:0], 0 }

// Add appends a row, which is not empty. Its subject must belong to the group, and come after those of the other rows.
func (g *RowGroup) Add(subject dict.ID, row []byte) {
	place := int(subject % rowsInGroup)
	head := uint64(len(row)) << 1
	if place == g.next {
		g.Value = binary.AppendUvarint(g.Value, head)
	} else {
		g.Value = append(binary.AppendUvarint(g.Value, head|1), byte(place))
	}
	g.Value = append(g.Value, row...)
	g.next = place + 1
}

// cutRow cuts the first row of a group, and returns its place. next is the place after the row before.
func cutRow(v []byte, next int) (place int, row, rest []byte, err error) {
	head, w := Uvarint(v)
	if w <= 0 {
		return 0, nil, nil, errRowGroup
	}
	v, place = v[w:], next
	if head&1 != 0 {
		if len(v) == 0 || int(v[0]) <= next {
			return 0, nil, nil, errRowGroup
		}
		place, v = int(v[0]), v[1:]
	}
	n := head >> 1
	if place >= rowsInGroup || n == 0 || n > uint64(len(v)) {
		return 0, nil, nil, errRowGroup
	}
	return place, v[:n:n], v[n:], nil
}

// EachRow calls each with the subjects and the rows of a group. first is the first subject that it can have.
func EachRow(first dict.ID, group []byte, each func(subject dict.ID, row []byte) error) error {
	for next := 0; len(group) > 0; {
		place, row, rest, err := cutRow(group, next)
		if err == nil {
			err = each(first&^(rowsInGroup-1)|dict.ID(place), row)
		}
		if err != nil {
			return err
		}
		next, group = place+1, rest
	}
	return nil
}

// RowIn returns the row of a subject in its group. It is empty if the group has none.
func RowIn(group []byte, subject dict.ID) ([]byte, error) {
	want := int(subject % rowsInGroup)
	for next := 0; len(group) > 0; {
		place, row, rest, err := cutRow(group, next)
		if err != nil {
			return nil, err
		}
		if place == want {
			return row, nil
		}
		if place > want {
			break
		}
		next, group = place+1, rest
	}
	return nil, nil
}

// rowGroupFolder is the scratch of a fold of groups.
type rowGroupFolder struct {
	rows [rowsInGroup][][]byte
	out  RowGroup
	row  []byte
}

// foldGroup appends the group that values, oldest first, fold to, and returns the number of ids of its largest row: members, and
// those kept as removed.
func (f *Folder) foldGroup(dst, key []byte, values [][]byte, base bool) (out []byte, largest int, err error) {
	_, first, err := ParseRowGroupKey(key)
	if err != nil {
		return nil, 0, err
	}
	g := &f.groups
	defer func() { // keep no values
		g.out = RowGroup{}
		for i := range g.rows {
			clear(g.rows[i])
			g.rows[i] = g.rows[i][:0]
		}
	}()
	for _, v := range values {
		if err := EachRow(0, v, func(place dict.ID, row []byte) error { g.rows[place] = append(g.rows[place], row); return nil }); err != nil {
			return nil, 0, err
		}
	}
	g.out = RowGroup{Value: dst}
	for i, rows := range g.rows {
		if len(rows) == 0 {
			continue
		}
		subject := first&^(rowsInGroup-1) | dict.ID(i)
		var n int
		if g.row, n, err = f.rows.fold(g.row[:0], subject, rows, base); err != nil {
			return nil, 0, err
		}
		if len(g.row) > 0 {
			g.out.Add(subject, g.row)
		}
		largest = max(largest, n)
	}
	return g.out.Value, largest, nil
}
