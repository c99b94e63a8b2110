package format

import (
	"cmp"
	"slices"

	"skein.blue/intern/dict"
)

// entry is the state of one member in one value.
type entry struct {
	id   uint64
	date uint32
	at   uint32 // 4 × the index of the value + flags
}

// The flags of an entry.
const (
	present  = 1 << iota
	returned // a present member was removed before it was added

	entryFlags = iota
)

func (e entry) is(flag uint32) bool { return e.at&flag != 0 }

// after returns the entry that follows an older one of the same member.
func (e entry) after(older entry) entry {
	switch {
	case !e.is(present), e.is(returned):
	case older.is(present):
		e.date = Undated
		e.at |= older.at & returned
	default:
		e.at |= returned
	}
	return e
}

// rowFolder is the scratch of a fold.
type rowFolder struct {
	ids            []uint64
	entries, other []entry
	spare          []entry
	starts         []int // of the values in other
	removed        []uint64
	members        []uint64
	dates          []uint32
}

// read appends the entries of v to dst, ascending by id.
func (f *rowFolder) read(dst []entry, subject dict.ID, v []byte, age uint32) (out []entry, generation uint64, err error) {
	r, err := ParseRow(subject, v)
	if err != nil {
		return dst, 0, err
	}
	start := len(dst)
	if f.ids, err = r.AppendMembers(f.ids[:0]); err == nil {
		f.dates, err = r.AppendDates(f.dates[:0], f.ids)
	}
	if err != nil {
		return dst, 0, err
	}
	for i, id := range f.ids {
		dst = append(dst, entry{id, f.dates[i], age<<entryFlags | present})
	}
	if len(r.Removed) == 0 {
		return dst, r.Generation, nil
	}
	if f.ids, err = r.AppendRemoved(f.ids[:0]); err != nil {
		return dst, 0, err
	}
	dst = slices.Grow(dst, len(f.ids))
	members := dst[start:]
	for _, id := range f.ids {
		if at, found := slices.BinarySearchFunc(members, id, func(e entry, id uint64) int { return cmp.Compare(e.id, id) }); found {
			members[at].at |= returned
		} else {
			dst = append(dst, entry{id, Undated, age << entryFlags})
		}
	}
	slices.SortFunc(dst[start:], func(x, y entry) int { return cmp.Or(cmp.Compare(x.id, y.id), cmp.Compare(x.at, y.at)) })
	return dst, r.Generation, nil
}

// fold appends the row that values, oldest first, fold to, and returns the number of its ids.
// The oldest value is usually the largest, so the others are sorted first and merged into it.
func (f *rowFolder) fold(dst []byte, subject dict.ID, values [][]byte, base bool) (out []byte, n int, err error) {
	if n, ok := foldsToItself(subject, values, base); ok {
		return append(dst, values[0]...), n, nil
	}
	generation, err := f.merge(subject, values)
	if err != nil {
		return nil, 0, err
	}
	if base && generation == 0 { // nothing lies below the members, and they lose their dates
		f.removed = f.removed[:0]
		for i, d := range f.dates {
			f.dates[i] = max(d, OneRecord)
		}
	}
	return AppendRow(dst, subject, generation, f.removed, f.members, f.dates), len(f.members) + len(f.removed), nil
}

// foldsToItself reports whether the fold of a row is its only value itself, and returns the number of its ids. In the fold with
// the oldest value, rows without a generation lose dates and the removed.
func foldsToItself(subject dict.ID, values [][]byte, base bool) (n int, ok bool) {
	if len(values) != 1 {
		return 0, false
	}
	v := values[0]
	if isPlain(v) { // as most are
		return numbers(v), true
	}
	r, err := ParseRow(subject, v)
	if base && r.Generation == 0 && (r.Dates != nil || len(r.Removed) > 0) {
		return 0, false
	}
	return numbers(r.Removed) + numbers(r.Members), err == nil
}

// merge sets f's removed, members and dates to what values, oldest first, come to. An operand with a generation replaces older values.
func (f *rowFolder) merge(subject dict.ID, values [][]byte) (generation uint64, err error) {
	for i := len(values) - 1; i > 0; i-- {
		if r, err := ParseRow(subject, values[i]); err == nil && r.Generation > 0 {
			values = values[i:]
			break
		}
	}
	f.entries, f.other, f.starts = f.entries[:0], f.other[:0], f.starts[:0]
	for age, v := range values {
		var g uint64
		if age == 0 {
			f.entries, g, err = f.read(f.entries, subject, v, 0)
		} else {
			f.starts = append(f.starts, len(f.other))
			f.other, g, err = f.read(f.other, subject, v, uint32(age))
		}
		if err != nil {
			return 0, err
		}
		generation = max(generation, g)
	}
	f.other, f.spare = mergeRuns(f.other, f.spare, f.starts, func(x, y *entry) int { return cmp.Compare(x.id, y.id) })
	f.removed, f.members, f.dates = f.removed[:0], f.members[:0], f.dates[:0]
	old, other := f.entries, f.other
	for len(old) > 0 || len(other) > 0 {
		var w entry
		if len(other) == 0 || len(old) > 0 && old[0].id < other[0].id {
			w, old = old[0], old[1:]
		} else {
			w, other = other[0], other[1:]
			if len(old) > 0 && old[0].id == w.id {
				w, old = w.after(old[0]), old[1:]
			}
			for ; len(other) > 0 && other[0].id == w.id; other = other[1:] {
				w = other[0].after(w)
			}
		}
		if !w.is(present) || w.is(returned) {
			f.removed = append(f.removed, w.id)
		}
		if w.is(present) {
			f.members, f.dates = append(f.members, w.id), append(f.dates, w.date)
		}
	}
	return generation, nil
}

// MergeRows folds a stored row, and operands, for a spill: it keeps the dates and the removed.
func MergeRows(subject dict.ID, values ...[]byte) (generation uint64, removed, members []uint64, dates []uint32, err error) {
	var f rowFolder
	generation, err = f.merge(subject, values)
	return generation, f.removed, f.members, f.dates, err
}
