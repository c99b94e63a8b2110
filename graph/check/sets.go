package check

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// eachSet reads all reverse sets, checks their form, and calls each with the members of every
// row and leaf: first those of the rows in groups. It compares the hidden set with the accounts.
func (v *checker) eachSet(each func(k kinds.Kind, subject dict.ID, members []uint64)) error {
	unmet := v.hidden.Clone()
	if err := v.scan([]byte{format.KeyRows}, func(key, value []byte) error { return v.rowGroup(key, value, each) }); err != nil {
		return err
	}
	v.setKey = v.setKey[:0]
	if err := v.scan([]byte{format.KeyReverse}, func(key, value []byte) error {
		k, subject, part, last, isLeaf, err := v.ParseSetKey(key)
		if err != nil || k != kinds.Hidden && v.kinds.Info(k) == nil {
			v.broken("set key %x is malformed, not of this store's layout, or of an unknown kind", key)
			return nil //nolint:nilerr // it is reported
		}
		var members []uint64
		if v.beginSet(format.AppendRowKey(nil, k, subject)) && format.HasGroups(k) {
			if err := v.readOver(k, subject); err != nil {
				return err
			}
		}
		if isLeaf {
			members, err = v.setLeaf(subject, key, value, part, last)
		} else {
			members, err = v.row(subject, key, value, part)
		}
		for _, m := range members {
			if v.Settings.PartitionOfID(dict.ID(m)) != part {
				v.broken("set %x has member %d, which is in partition %d", key, m, v.Settings.PartitionOfID(dict.ID(m)))
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
		if !isLeaf && len(members) > 0 {
			v.named(v.kinds.Info(k).To.Is(), subject, "subject")
		}
		each(k, subject, members)
		return nil
	}); err != nil {
		return err
	}
	if !unmet.IsEmpty() {
		v.broken("%d accounts are hidden, but not in the hidden set", unmet.GetCardinality())
	}
	return nil
}

// rowGroup checks a row group, and calls each with the members of every row.
func (v *checker) rowGroup(key, value []byte, each func(k kinds.Kind, subject dict.ID, members []uint64)) error {
	k, first, err := format.ParseRowGroupKey(key)
	if err != nil {
		v.broken("key %x of a row group: %v", key, err)
		return nil
	}
	part := v.PartitionOfKey(key)
	var again format.RowGroup
	err = format.EachRow(first, value, func(subject dict.ID, row []byte) error {
		again.Add(subject, row)
		set := format.AppendRowKey(nil, k, subject)
		v.beginSet(set)
		members, err := v.row(subject, set, row, part)
		if err != nil {
			return err
		}
		for _, m := range members {
			if !bytes.Equal(key, v.AppendMemberKey(nil, k, subject, dict.ID(m))) {
				v.broken("row group %x has member %d of %d, which belongs elsewhere", key, m, subject)
				break
			}
		}
		if len(members) > 0 {
			v.named(v.kinds.Info(k).To.Is(), subject, "subject")
		}
		each(k, subject, members)
		return nil
	})
	switch {
	case err != nil:
		v.broken("row group %x: %v", key, err)
		v.unreadable = true
	case !bytes.Equal(again.Value, value):
		v.broken("row group %x is %x; expected %x", key, value, again.Value)
	}
	return nil
}

// readOver reads the rows of a set that lies in groups, for setLeaf. rowGroup has reported what is malformed.
func (v *checker) readOver(k kinds.Kind, subject dict.ID) error {
	err := kv.ScanPrefix(v.r, v.AppendMembersKey(nil, k, subject), func(key, value []byte) error {
		value, err := format.RowOf(k, subject, value)
		generation, removed, members, _, merr := format.MergeRows(subject, value)
		if err = errors.Join(err, merr); err != nil || generation > 0 {
			v.spilled |= 1 << v.PartitionOfKey(key)
		}
		v.unreadable = v.unreadable || err != nil
		v.over = append(append(v.over, removed...), members...)
		return nil
	})
	slices.Sort(v.over)
	return cmp.Or(v.damage.failure(), err)
}

// row checks a row, and returns its members. It adds its ids to over, so that setLeaf does
// not return them again.
func (v *checker) row(subject dict.ID, key, value []byte, part uint8) (members []uint64, err error) {
	r, members, removed, err := v.content(subject, key, value)
	if err != nil {
		return nil, err
	}
	if r.Generation == 0 && (r.Dates != nil || len(removed) > 0) {
		v.broken("row %x keeps dates, or removed members, with nothing below it", key)
	}
	if r.Generation > 0 {
		v.spilled |= 1 << part
	}
	v.over = append(append(v.over, removed...), members...)
	slices.Sort(v.over)
	return members, nil
}

// content decodes a row or a leaf, and checks its form.
func (v *checker) content(subject dict.ID, key, value []byte) (r format.Row, members, removed []uint64, err error) {
	var dates []uint32
	if r, err = format.ParseRow(subject, value); err == nil {
		members, err = r.AppendMembers(nil)
	}
	if err == nil {
		removed, err = r.AppendRemoved(nil)
	}
	if err == nil {
		dates, err = r.AppendDates(nil, members)
	}
	if err != nil {
		return r, nil, nil, err
	}
	if again := format.AppendRow(nil, subject, r.Generation, removed, members, dates); string(again) != string(value) {
		v.broken("set %x is %x; expected %x", key, value, again)
	}
	return r, members, removed, nil
}

// beginSet reports whether the key is in another set than the last, and forgets the rows of that one.
func (v *checker) beginSet(key []byte) (another bool) {
	if another = !bytes.Equal(key, v.setKey); another {
		v.setKey, v.over, v.spilled, v.lastLeaf = append(v.setKey[:0], key...), v.over[:0], 0, nil
	}
	return another
}

// setLeaf checks a leaf, and returns the members that its row does not override.
func (v *checker) setLeaf(subject dict.ID, key, value []byte, part uint8, last dict.ID) (members []uint64, err error) {
	if v.spilled>>part&1 == 0 {
		v.broken("leaf %x has no spilled row above it", key)
	}
	r, members, removed, err := v.content(subject, key, value)
	if err != nil {
		return nil, err
	}
	if r.Generation > 0 || len(removed) > 0 || len(members) == 0 {
		v.broken("leaf %x has generation %d, %d removed members, and %d members", key, r.Generation, len(removed), len(members))
	}
	above := v.lastLeaf != nil && bytes.Equal(v.LeavesBeside(v.lastLeaf), v.LeavesBeside(key))
	if _, _, _, before, _, _ := v.ParseSetKey(v.lastLeaf); len(members) > 0 && (members[len(members)-1] > uint64(last) || above && members[0] <= uint64(before)) {
		v.broken("leaf %x has members that belong elsewhere", key)
	}
	v.lastLeaf = bytes.Clone(key)
	return slices.DeleteFunc(members, func(m uint64) bool { _, over := slices.BinarySearch(v.over, m); return over }), nil
}
