package check

import (
	"bytes"
	"errors"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// eachSet reads all reverse sets, checks their form, and calls each with the members of every
// row and container: first those of the rows in groups. It compares the hidden set with the accounts.
func (v *checker) eachSet(each func(k kinds.Kind, subject dict.ID, members []uint64) error) error {
	unmet := v.hidden.Clone()
	if err := v.scan([]byte{format.KeyRows}, func(key, value []byte) error { return v.rowGroup(key, value, each) }); err != nil {
		return err
	}
	v.setKey = v.setKey[:0]
	if err := v.scan([]byte{format.KeyReverse}, func(key, value []byte) error {
		k, subject, block, isRow, err := format.ParseReverseKey(key)
		if err != nil || k != kinds.Hidden && v.kinds.Info(k) == nil {
			v.broken("set key %x is malformed, or of an unknown kind", key)
			return nil //nolint:nilerr // it is reported
		}
		if !v.FitsReverseKey(key, isRow) {
			v.broken("set key %x does not fit this store's layout", key)
			return nil
		}
		var members []uint64
		if v.beginSet(format.AppendRowKey(nil, k, subject)) {
			if v.Grouped(k) {
				if err := v.readOver(k, subject); err != nil {
					return err
				}
			}
		}
		if isRow {
			members, err = v.row(subject, key, value)
		} else {
			members, err = v.container(k, subject, key, value, block)
		}
		for _, m := range members {
			if len(key) > len(v.setKey) && isRow && v.Settings.PartitionOfID(dict.ID(m)) != key[len(key)-1] {
				v.broken("row %x has member %d, which is in partition %d", key, m, v.Settings.PartitionOfID(dict.ID(m)))
			}
		}
		if err != nil {
			v.broken("set %x: %v", key, err)
			v.unreadable = true
			return nil
		}
		if k == kinds.Hidden {
			for _, m := range members {
				if !unmet.CheckedRemove(m) {
					v.broken("account %d is in the hidden set, but its state is active", m)
				}
			}
			return nil
		}
		if isRow && len(members) > 0 {
			v.named(v.kinds.Info(k).To.Is(), subject, "subject")
		}
		return each(k, subject, members)
	}); err != nil {
		return err
	}
	if !unmet.IsEmpty() {
		v.broken("%d accounts are hidden, but not in the hidden set", unmet.GetCardinality())
	}
	return nil
}

// rowGroup checks a row group, and calls each with the members of every row.
func (v *checker) rowGroup(key, value []byte, each func(k kinds.Kind, subject dict.ID, members []uint64) error) error {
	k, first, err := format.ParseRowGroupKey(key)
	if err == nil && !v.Grouped(k) {
		err = errors.New("it does not fit this store's layout")
	}
	if err != nil {
		v.broken("key %x of a row group: %v", key, err)
		return nil
	}
	var again format.RowGroup
	var ended error // by each
	err = format.EachRow(first, value, func(subject dict.ID, row []byte) error {
		again.Add(subject, row)
		set := format.AppendRowKey(nil, k, subject)
		v.beginSet(set)
		members, err := v.row(subject, set, row)
		if err != nil {
			return err
		}
		if len(members) > 0 {
			v.named(v.kinds.Info(k).To.Is(), subject, "subject")
		}
		ended = each(k, subject, members)
		return ended
	})
	switch {
	case ended != nil:
		return ended
	case err != nil:
		v.broken("row group %x: %v", key, err)
		v.unreadable = true
	case !bytes.Equal(again.Value, value):
		v.broken("row group %x is %x; expected %x", key, value, again.Value)
	}
	return nil
}

// readOver reads the row of a set that lies in a group, for container. rowGroup has reported what is malformed.
func (v *checker) readOver(k kinds.Kind, subject dict.ID) error {
	t, err := read.OpenSet(v.r, v.Layout, k, subject)
	if err != nil {
		v.unreadable, v.spilled = true, 1
		return v.damage.failure()
	}
	if t.Generation > 0 {
		v.spilled = 1
	}
	v.over = append(append(v.over, t.Removed...), t.Members...)
	slices.Sort(v.over)
	return nil
}

// row checks a row, and returns its members. It adds its ids to over, so that container does
// not return them again.
func (v *checker) row(subject dict.ID, key, value []byte) (members []uint64, err error) {
	r, err := format.ParseRow(subject, value)
	if err != nil {
		return nil, err
	}
	if members, err = r.AppendMembers(nil); err != nil {
		return nil, err
	}
	removed, err := r.AppendRemoved(nil)
	if err != nil {
		return nil, err
	}
	dates := make([]uint32, len(members))
	for i := range dates {
		dates[i] = r.Date(i)
	}
	if r.Generation == 0 && r.Dates != nil {
		v.broken("row %x has dates, with nothing below it", key)
	}
	repeated, err := r.AppendRepeated(nil)
	if err != nil {
		return nil, err
	}
	if again := format.AppendDatedRow(format.AppendRepeated(nil, subject, repeated), subject, r.Generation, removed, members, dates); string(again) != string(value) {
		v.broken("row %x is %x; expected %x", key, value, again)
	}
	for _, id := range repeated {
		if _, is := slices.BinarySearch(members, id); !is {
			v.broken("row %x has %d as a repeated member, but not as a member", key, id)
		}
	}
	if len(repeated) > 0 && (r.Generation > 0 || !format.HasRepeated(kinds.Kind(key[1]))) {
		v.broken("row %x has repeated members; rows of its kind, or above containers, have none", key)
	}
	for _, id := range removed {
		if _, both := slices.BinarySearch(members, id); both {
			v.broken("row %x has %d both as a member and as removed", key, id)
		}
	}
	if len(removed) > 0 && r.Generation == 0 {
		v.broken("row %x keeps %d removed members with nothing below it", key, len(removed))
	}
	if r.Generation > 0 {
		part := uint8(0)
		if v.Shared() {
			part = key[len(key)-1]
		}
		v.spilled |= 1 << part
	}
	v.over = append(append(v.over, removed...), members...)
	slices.Sort(v.over)
	return members, nil
}

// beginSet reports whether the key is in another set than the last, and forgets the rows of that one.
func (v *checker) beginSet(key []byte) (another bool) {
	if another = !bytes.Equal(key, v.setKey); another {
		v.setKey, v.over, v.spilled = append(v.setKey[:0], key...), v.over[:0], 0
	}
	return another
}

// container checks a container, and returns the members that its row does not override.
func (v *checker) container(k kinds.Kind, subject dict.ID, key, value []byte, block uint64) (members []uint64, err error) {
	if v.spilled>>v.Settings.PartitionOfID(dict.ID(block<<16))&1 == 0 {
		v.broken("container %x has no spilled row above it", key)
	}
	removed, _, err := format.SplitContainer(value)
	if err != nil {
		return nil, err
	}
	if members, err = format.ContainerMembers(block<<16, value); err != nil {
		return nil, err
	}
	for i := 1; i < len(members); i++ {
		if members[i-1] >= members[i] {
			v.broken("container %x does not ascend", key)
			break
		}
	}
	low := make([]uint16, len(members))
	for i, m := range members {
		low[i] = uint16(m)
		if v.summing && k != kinds.Hidden {
			v.add(v.dates.members, k, m, uint64(subject))
		}
	}
	if again := format.AppendContainer(nil, low, nil); len(removed) == 0 && len(value) > 0 && !bytes.Equal(again, value) { // an emptied container has no bytes
		v.broken("container %x has %d bytes; expected %d", key, len(value), len(again))
	}
	if len(removed) > 0 {
		v.broken("container %x keeps %d removed members with nothing below it", key, len(removed)/2)
	}
	return slices.DeleteFunc(members, func(m uint64) bool { _, over := slices.BinarySearch(v.over, m); return over }), nil
}
