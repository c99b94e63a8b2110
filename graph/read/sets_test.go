package read_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// bigSet is a spilled set: its rows, and its containers.
func bigSet(l format.Layout, k kinds.Kind, subject dict.ID, row format.Row, removed, added []uint64, members []uint64) map[string][]byte {
	first := dict.ID(1)
	key, v := l.AppendMemberKey(nil, k, subject, first), format.AppendRow(nil, subject, row.Generation, removed, added)
	if l.Grouped(k) {
		var g format.RowGroup
		g.Add(subject, v)
		v = g.Value
	}
	rows := map[string][]byte{string(key): v}
	for len(members) > 0 {
		var low []uint16
		block := format.BlockOf(members[0])
		low, members = format.TakeBlock(nil, members, block)
		rows[string(l.AppendMemberContainerKey(nil, k, subject, dict.ID(block<<16)))] = format.AppendContainer(nil, low, nil)
	}
	return rows
}

// TestContainerSizes: containers of all sizes, neighbouring and far apart, become one bitmap.
// The largest array has one member less than Roaring's.
func TestContainerSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	sizes := []int{1, 2, 4095, 4096, 4097, 30_000, 1 << 16}
	blocks := map[string][]uint64{
		"neighbours": {0, 1, 2, 3, 4, 5, 6},
		"apart":      {0, 1 << 15, 1<<23 + 5, 1 << 31, 1<<47 + 1, 1<<47 + 2, 1<<48 - 2},
	}
	for name, at := range blocks {
		for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings} {
			l := format.Layout{Settings: settings}
			var members []uint64
			for i, n := range sizes {
				for _, low := range rng.Perm(1 << 16)[:n] {
					members = append(members, at[i]<<16|uint64(low))
				}
			}
			slices.Sort(members)
			removed, added := members[5:50], []uint64{at[6]<<16 + 1<<17, at[6]<<16 + 1<<17 + 9}
			want := roaring64.BitmapOf(members...)
			want.AddMany(added)
			for _, id := range removed {
				want.Remove(id)
			}
			raw(t, bigSet(l, 2, 1<<33, format.Row{Generation: 3}, removed, added, members), func(r kv.Reader) {
				got, err := read.Bitmap(r, l, 2, 1<<33)
				if err != nil || !got.Equals(want) {
					t.Fatalf("%s, %s: %d members, want %d: %v", name, settings, got.GetCardinality(), want.GetCardinality(), err)
				}
				got.Add(1 << 60) // the caller owns the bitmap: the next read must not change
				if again, err := read.Bitmap(r, l, 2, 1<<33); err != nil || !again.Equals(want) {
					t.Errorf("%s, %s: the second read differs: %v", name, settings, err)
				}
				for i := 0; i < len(members); i += 1 + rng.IntN(2000) {
					if l.Shared() && settings.PartitionOfID(dict.ID(members[i])) != settings.PartitionOfID(1) {
						continue // the store has no row for it
					}
					if has, err := read.HasEdge(r, l, 2, dict.ID(members[i]), 1<<33); err != nil || has != want.Contains(members[i]) {
						t.Errorf("%s: member %d: %v, %v", name, members[i], has, err)
					}
				}
			})
		}
	}
}

// TestEmptyContainers: an empty container reads like a missing one.
func TestEmptyContainers(t *testing.T) {
	l := format.Layout{Settings: dict.DefaultSettings}
	rows := bigSet(l, 1, 9, format.Row{Generation: 1}, nil, []uint64{70}, []uint64{3 << 16})
	key := format.AppendRowKey(nil, 1, 9)
	rows[string(format.AppendContainerKey(nil, key, 2))] = nil
	rows[string(format.AppendContainerKey(nil, key, 4))] = []byte{0}
	rows[string(format.AppendContainerKey(nil, key, 5))] = format.AppendContainer(nil, nil, []uint16{8})
	raw(t, rows, func(r kv.Reader) {
		got, err := read.Bitmap(r, l, 1, 9)
		if err != nil || !slices.Equal(got.ToArray(), []uint64{70, 3 << 16}) {
			t.Errorf("%v, %v", got, err)
		}
		for _, id := range []dict.ID{2 << 16, 4 << 16, 5<<16 + 8, 6 << 16} {
			if has, err := read.HasEdge(r, l, 1, id, 9); has || err != nil {
				t.Errorf("%d is a member: %v", id, err)
			}
		}
	})
}

// TestMalformedSets: every reader returns an error that names the key.
func TestMalformedSets(t *testing.T) {
	key := string(format.AppendRowKey(nil, 1, 9))
	container := string(format.AppendContainerKey(nil, []byte(key), 1))
	spilled := format.AppendRow(nil, 9, 1, nil, nil)
	group := string(format.AppendRowGroupKey(nil, 2, 9))
	l := format.Layout{Settings: dict.DefaultSettings}
	for name, test := range map[string]struct {
		key    string
		value  []byte
		want   error  // of Bitmap
		says   string // it too
		edge   bool   // HasEdge of a member of block 1 finds it
		shared bool
		kind   kinds.Kind // 0: a follow
	}{
		"a row without its numbers":    {key: key, value: []byte{0x81}, says: "reading set ", edge: true},
		"a row that does not ascend":   {key: key, value: []byte{4, 0}, says: "reading set "},
		"a row with too many removed":  {key: key, value: []byte{3, 9, 1}, says: "reading set ", edge: true},
		"an odd container":             {key: container, value: []byte{0, 1, 2, 3}, want: format.ErrContainer, edge: true},
		"a container that is too long": {key: container, value: make([]byte, 1+format.BitmapBytes+2), want: format.ErrContainer, edge: true},
		"more removed than there are":  {key: container, value: []byte{5, 0, 0}, want: format.ErrContainer, edge: true},
		"a row among the containers":   {key: key + "\x05", value: []byte{4}, want: format.ErrContainer},
		"a key of no container":        {key: key + "\x05\x05", value: []byte{0}, says: "is malformed"},
		"of several, a row":            {key: key + "\x00", value: []byte{0x81}, says: "reading set ", edge: true, shared: true},
		"a group that is cut":          {key: group, value: []byte{3, 9}, says: "reading set ", edge: true, kind: 2},
		"a group with a malformed row": {key: group, value: []byte{3, 9, 0x81}, says: "reading set ", edge: true, kind: 2},
	} {
		if l.Settings = dict.DefaultSettings; test.shared {
			l.Settings = dict.SharedSettings
		}
		kind := cmp.Or(test.kind, 1)
		raw(t, map[string][]byte{key: spilled}, func(r kv.Reader) {
			if set, err := read.Bitmap(r, l, 1, 9); err != nil || !set.IsEmpty() {
				t.Fatalf("the undamaged set is %v, %v", set, err)
			}
		})
		rows := map[string][]byte{key: spilled}
		rows[test.key] = test.value
		raw(t, rows, func(r kv.Reader) {
			_, err := read.Bitmap(r, l, kind, 9)
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := read.HasEdge(r, l, kind, 1<<16, 9); (err != nil) != test.edge {
				t.Errorf("%s: an edge: %v", name, err)
			}
		})
	}
}
