package read

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// A Set has the rows of a reverse set: one, or in a shared store one per partition. If
// Generation is not 0, more members lie in containers, which Containers and ContainerKey find;
// the rows override them.
type Set struct {
	Key              []byte // the first bytes of the keys of its containers; unless the set is grouped, also of its rows
	Rows             []byte // the values, one after another
	Generation       uint64 // the sum of the rows' generations
	Members, Removed []uint64
	Dates            []uint32 // of Members; nil: all are format.Undated
	Repeated         []uint64 // those of Members that the rows note as such, in no order

	below []byte // the prefix of the containers' keys
}

// OpenSet reads the rows of the set of actors that have an edge of a kind to subject.
func OpenSet(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID) (t Set, err error) {
	t.Key = format.AppendRowKey(nil, k, subject)
	t.below = l.Containers(t.Key)
	add := func(v []byte) error {
		row, err := format.ParseRow(subject, v)
		if err != nil {
			return err
		}
		before := len(t.Members)
		if t.Members, err = row.AppendMembers(t.Members); err != nil {
			return err
		}
		if row.Dates != nil || t.Dates != nil {
			for len(t.Dates) < before {
				t.Dates = append(t.Dates, format.Undated)
			}
			for i := range t.Members[before:] {
				t.Dates = append(t.Dates, row.Date(i))
			}
		}
		// Generations only grow, so two states with the same sum have the same ones.
		t.Generation += row.Generation
		if t.Removed, err = row.AppendRemoved(t.Removed); err == nil && len(row.Repeated) > 0 {
			t.Repeated, err = row.AppendRepeated(t.Repeated)
		}
		return err
	}
	if l.Shared() {
		err = r.Scan(t.Key, t.below, false, func(_, v []byte) (bool, error) {
			t.Rows = append(t.Rows, v...)
			err := add(v)
			return err == nil, err
		})
		t.sort()
	} else {
		var v []byte
		if v, _, err = r.Get(l.AppendMemberKey(nil, k, subject, dict.None)); err == nil {
			v, err = l.RowIn(k, subject, v)
		}
		if err == nil {
			err = add(v)
		}
		if t.Generation > 0 { // otherwise nothing uses Rows
			t.Rows = bytes.Clone(v)
		}
	}
	if err != nil {
		return t, fmt.Errorf("reading set %x: %w", t.Key, err)
	}
	return t, nil
}

// sort sorts the members and the removed of several rows.
func (t *Set) sort() {
	slices.Sort(t.Removed)
	if t.Dates == nil {
		slices.Sort(t.Members)
		return
	}
	sort.Sort(byMember{t})
}

type byMember struct{ *Set }

func (b byMember) Len() int           { return len(b.Members) }
func (b byMember) Less(i, j int) bool { return b.Members[i] < b.Members[j] }
func (b byMember) Swap(i, j int) {
	b.Members[i], b.Members[j] = b.Members[j], b.Members[i]
	b.Dates[i], b.Dates[j] = b.Dates[j], b.Dates[i]
}

// ContainerKey returns the key of the container of a block of members.
func (t *Set) ContainerKey(block uint64) []byte {
	return format.AppendBlock(slices.Clone(t.below), block)
}

// Over applies the rows to a copy of base, the containers. The copy shares containers with
// base, and the library sets their shared marks even when it only reads. So base is good for
// copying only.
func (t *Set) Over(base *roaring64.Bitmap) *roaring64.Bitmap {
	set := base.Clone()
	set.AddMany(t.Members)
	for _, id := range t.Removed {
		set.Remove(id)
	}
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
		if base, err = t.Containers(r); err != nil {
			return nil, err
		}
	}
	return t.Over(base), nil
}

// Containers reads the containers of the set, for Over. It does not decode them: it puts the
// headers of the portable Roaring format
// (https://github.com/RoaringBitmap/RoaringFormatSpec) before their bytes.
func (t *Set) Containers(r kv.Reader) (*roaring64.Bitmap, error) {
	st, _ := stitchers.Get().(*stitcher)
	defer stitchers.Put(st)
	st.parts, st.data = st.parts[:0], st.data[:0]
	lo := append(slices.Clone(t.below), 0) // after the row
	err := r.Scan(lo, kv.PrefixEnd(t.below), false, func(k, v []byte) (bool, error) {
		_, _, block, isRow, err := format.ParseReverseKey(k)
		if err == nil && isRow {
			err = format.ErrContainer
		}
		if err == nil {
			err = st.add(block, v)
		}
		if err != nil {
			return false, fmt.Errorf("reading container %x: %w", k, err)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return st.bitmap()
}

// stitchers reuses memory, because a large set needs much of it.
var stitchers = sync.Pool{New: func() any { return new(stitcher) }}

// stitcher builds a bitmap from containers, which must arrive in ascending order.
type stitcher struct {
	parts []stitched
	data  []byte
}

type stitched struct {
	block      uint64
	start, end int
	n          int // members
}

func (s *stitcher) add(block uint64, v []byte) error {
	_, present, err := format.SplitContainer(v)
	if err != nil || len(present) == 0 {
		return err
	}
	start, n := len(s.data), len(present)/2
	if len(present) == format.BitmapBytes {
		n = 0
		for i := 0; i < format.BitmapBytes; i += 8 {
			n += bits.OnesCount64(binary.LittleEndian.Uint64(present[i:]))
		}
	}
	if len(present) == format.BitmapBytes && n <= format.ArrayMax { // Roaring's arrays have up to 4,096 members, skein's up to 4,095
		ids, err := format.ContainerMembers(0, v)
		if err != nil {
			return err
		}
		for _, id := range ids {
			s.data = binary.LittleEndian.AppendUint16(s.data, uint16(id))
		}
	} else {
		s.data = append(s.data, present...)
	}
	s.parts = append(s.parts, stitched{block, start, len(s.data), n})
	return nil
}

func (s *stitcher) bitmap() (*roaring64.Bitmap, error) {
	const noRuns = 12346
	var tops int
	out := make([]byte, 8, 8+len(s.data)+16*len(s.parts)+64)
	for parts := range sets.Runs(s.parts, func(x, y stitched) bool { return x.block>>16 == y.block>>16 }) {
		tops++
		out = binary.LittleEndian.AppendUint32(out, uint32(parts[0].block>>16))
		out = binary.LittleEndian.AppendUint32(out, noRuns)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(parts)))
		for _, p := range parts {
			out = binary.LittleEndian.AppendUint16(out, uint16(p.block))
			out = binary.LittleEndian.AppendUint16(out, uint16(p.n-1))
		}
		offset := 8 + 8*len(parts)
		for _, p := range parts {
			out = binary.LittleEndian.AppendUint32(out, uint32(offset))
			offset += p.end - p.start
		}
		out = append(out, s.data[parts[0].start:parts[len(parts)-1].end]...)
	}
	binary.LittleEndian.PutUint64(out, uint64(tops))
	set := roaring64.New()
	if _, err := set.FromUnsafeBytes(out); err != nil {
		return nil, fmt.Errorf("%w: %w", format.ErrContainer, err)
	}
	return set, nil
}
