package read

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Set has the rows of a reverse set: one, or in a shared store one per partition. If
// Generation is not 0, more members lie in leaves, which Leaves reads;
// the rows override them.
type Set struct {
	Key              []byte // the first bytes of the keys of its leaves; unless the set is grouped, also of its rows
	Rows             []byte // the values, one after another
	Generation       uint64 // the sum of the rows' generations
	Members, Removed []uint64
	Dates            []uint32 // of Members
}

// OpenSet reads the rows of the set of actors that have an edge of a kind to subject.
func OpenSet(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID) (t Set, err error) {
	t.Key = format.AppendRowKey(nil, k, subject)
	lo, hi := l.RowsOf(nil, k, subject)
	row := func(v []byte) error {
		v, err := format.RowOf(k, subject, v)
		if err == nil {
			err = t.add(subject, v)
		}
		if hi != nil || t.Generation > 0 { // otherwise nothing uses Rows
			t.Rows = append(t.Rows, v...)
		}
		return err
	}
	if hi == nil { // a look-up is quicker than a scan
		var v []byte
		if v, _, err = r.Get(lo); err == nil {
			err = row(v)
		}
	} else if err = r.Scan(lo, hi, false, func(_, v []byte) (bool, error) { return true, row(v) }); err == nil {
		sort.Sort(byMember{&t})
		slices.Sort(t.Removed)
	}
	if err != nil {
		return t, fmt.Errorf("reading set %x: %w", t.Key, err)
	}
	return t, nil
}

// BeginSet begins the read of OpenSet.
func BeginSet(p kv.Prefetcher, l format.Layout, k kinds.Kind, subject dict.ID) {
	if lo, hi := l.RowsOf(nil, k, subject); hi != nil {
		p.PrefetchScan(lo, hi, 0)
	} else {
		p.PrefetchGet(lo)
	}
}

// add adds a row.
func (t *Set) add(subject dict.ID, v []byte) error {
	row, err := format.ParseRow(subject, v)
	if err != nil {
		return err
	}
	before := len(t.Members)
	if t.Members, err = row.AppendMembers(t.Members); err != nil {
		return err
	}
	if t.Dates, err = row.AppendDates(t.Dates, t.Members[before:]); err != nil {
		return err
	}
	t.Generation += row.Generation // they only grow, so two states with the same sum have the same ones
	t.Removed, err = row.AppendRemoved(t.Removed)
	return err
}

type byMember struct{ *Set }

func (b byMember) Len() int           { return len(b.Members) }
func (b byMember) Less(i, j int) bool { return b.Members[i] < b.Members[j] }
func (b byMember) Swap(i, j int) {
	b.Members[i], b.Members[j] = b.Members[j], b.Members[i]
	b.Dates[i], b.Dates[j] = b.Dates[j], b.Dates[i]
}

// Over applies the rows to a copy of base, the members of the leaves. The copy shares memory with
// base, and the library sets its marks of that even when it only reads. So base is good for
// copying only.
func (t *Set) Over(base *roaring64.Bitmap) *roaring64.Bitmap {
	set := base.Clone()
	for _, id := range t.Removed {
		set.Remove(id)
	}
	set.AddMany(t.Members)
	return set
}

// Bitmap reads a whole reverse set, or the hidden set. The caller owns the bitmap.
func Bitmap(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID) (*roaring64.Bitmap, error) {
	t, err := OpenSet(r, l, k, subject)
	if err != nil {
		return nil, err
	}
	base := roaring64.New()
	if t.Generation > 0 {
		if base, err = t.Leaves(r); err != nil {
			return nil, err
		}
	}
	return t.Over(base), nil
}

// Leaves reads the members in the leaves of the set, for Over.
func (t *Set) Leaves(r kv.Reader) (*roaring64.Bitmap, error) {
	set := roaring64.New()
	var ids []uint64
	err := t.eachLeaf(r, func(row *format.Row) (err error) {
		if ids, err = row.AppendMembers(ids[:0]); err == nil {
			set.AddMany(ids)
		}
		return err
	})
	return set, err
}

// eachLeaf calls each with the leaves.
func (t *Set) eachLeaf(r kv.Reader, each func(*format.Row) error) error {
	subject, _ := dict.ReadID(t.Key[2:])
	leaves := format.Leaves(t.Key)
	return kv.ScanPrefix(r, leaves, func(key, v []byte) error {
		row, err := format.ParseRow(subject, v)
		if err == nil {
			err = each(&row)
		}
		if err != nil {
			return fmt.Errorf("reading leaf %x: %w", key, err)
		}
		return nil
	})
}

// leafOf returns bounds of keys. The first key in them is that of the leaf that a member of a set belongs to.
func leafOf(l format.Layout, k kinds.Kind, subject, member dict.ID) (lo, hi []byte) {
	lo = l.AppendSetLeafKey(nil, k, subject, member)
	return lo, kv.PrefixEnd(l.LeavesBeside(lo))
}

// BeginLeaf begins the second read of Date.
func BeginLeaf(r kv.Reader, l format.Layout, k kinds.Kind, actor, subject dict.ID) {
	if p, ok := kv.Ahead(r); ok {
		lo, hi := leafOf(l, k, subject, actor)
		p.PrefetchScan(lo, hi, 1)
	}
}

// Date returns the date of a member of a set; found is false if the set does not have it. It reads one or two values, whatever the size of
// the set; below says that it read the second one, of a leaf.
func Date(r kv.Reader, l format.Layout, k kinds.Kind, subject, member dict.ID) (date uint32, found, below bool, err error) {
	v, _, err := r.Get(l.AppendMemberKey(nil, k, subject, member))
	if err != nil {
		return 0, false, false, err
	}
	return DateIn(r, l, k, subject, member, v)
}

// DateIn is Date with the value that has the member's row, or nil if there is none.
func DateIn(r kv.Reader, l format.Layout, k kinds.Kind, subject, member dict.ID, v []byte) (date uint32, found, below bool, err error) {
	var row format.Row
	if v, err = format.RowOf(k, subject, v); err == nil {
		row, err = format.ParseRow(subject, v)
	}
	if err != nil {
		return 0, false, false, fmt.Errorf("reading set %x: %w", l.AppendMemberKey(nil, k, subject, member), err)
	}
	date, found = row.Date(uint64(member))
	if row.Generation == 0 || row.HasRemoved(uint64(member)) || found && date == format.Undated {
		return date, found, false, nil
	}
	BeginLeaf(r, l, k, member, subject)
	from, end := leafOf(l, k, subject, member)
	err = r.Scan(from, end, false, func(key, v []byte) (bool, error) {
		leaf, err := format.ParseRow(subject, v)
		if err != nil {
			return false, fmt.Errorf("reading leaf %x: %w", key, err)
		}
		if older, again := leaf.Date(uint64(member)); found && again {
			date = format.Undated
		} else if again {
			date, found = older, true
		}
		return false, nil
	})
	return date, found, true, err
}

// LeafMembers returns those of the ids, which ascend, that are in the leaves of the set, in no order. It reads only leaves that may have one.
func (t *Set) LeafMembers(r kv.Reader, l format.Layout, ids []uint64) (found []uint64, err error) {
	k := kinds.Kind(t.Key[1])
	subject, _ := dict.ReadID(t.Key[2:])
	var of [dict.MaxPartitions][]uint64
	for _, id := range ids {
		part := l.Settings.PartitionOfID(dict.ID(id))
		of[part] = append(of[part], id)
	}
	var members []uint64
	for runs := of[:]; len(runs) > 0; { // a leaf of each partition in turn: they are read together
		runs = slices.DeleteFunc(runs, func(run []uint64) bool { return len(run) == 0 })
		for _, run := range runs {
			BeginLeaf(r, l, k, dict.ID(run[0]), subject)
		}
		for i, run := range runs {
			last := dict.ID(math.MaxUint64) // unless there is a leaf
			members = members[:0]
			from, end := leafOf(l, k, subject, dict.ID(run[0]))
			err := r.Scan(from, end, false, func(key, v []byte) (_ bool, err error) {
				var row format.Row
				if _, _, _, last, _, err = l.ParseSetKey(key); err == nil {
					row, err = format.ParseRow(subject, v)
				}
				if err == nil {
					members, err = row.AppendMembers(members)
				}
				return false, err
			})
			if err != nil {
				return nil, fmt.Errorf("reading the leaves of set %x: %w", t.Key, err)
			}
			for ; len(run) > 0 && run[0] <= uint64(last); run = run[1:] {
				if _, is := slices.BinarySearch(members, run[0]); is {
					found = append(found, run[0])
				}
			}
			runs[i] = run
		}
	}
	return found, nil
}
