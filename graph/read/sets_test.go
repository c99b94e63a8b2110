package read_test

import (
	"cmp"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// TestMalformedSets: every reader returns an error that names the key.
func TestMalformedSets(t *testing.T) {
	l := format.Layout{Settings: dict.DefaultSettings}
	key, leaf := string(format.AppendRowKey(nil, 1, 9)), string(l.AppendSetLeafKey(nil, 1, 9, 1<<17))
	group := string(l.AppendMembersKey(nil, 2, 9))
	spilled := format.AppendRow(nil, 9, 1, nil, nil, nil)
	for name, test := range map[string]struct {
		key    string
		value  []byte
		says   string // of Bitmap: "" if it does not fail
		edge   bool   // HasEdge of a member of the leaf finds it
		leaf   bool   // so does AppendLeafMembers
		shared bool
		kind   kinds.Kind // 0: a follow
	}{
		"a row without its numbers":    {key: key, value: []byte{0x81}, says: "reading set ", edge: true},
		"a row that does not ascend":   {key: key, value: []byte{4, 0}, says: "reading set "},
		"a row with too many removed":  {key: key, value: []byte{3, 9, 1}, says: "reading set ", edge: true},
		"a leaf that is cut":           {key: leaf, value: []byte{0x81}, says: "reading leaf ", edge: true, leaf: true},
		"a leaf that does not ascend":  {key: leaf, value: []byte{4, 0}, says: "reading leaf ", leaf: true},
		"a leaf with too few dates":    {key: leaf, value: []byte{0x80, 0, 1, 4, 0, 0, 0}, says: "reading leaf ", edge: true, leaf: true},
		"a leaf under no leaf's key":   {key: leaf + "\x05", value: nil, leaf: true},
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
			if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
			wanted := read.DateRange{Last: format.Undated}
			if _, err := read.Dates(r, l, kind, 9, &wanted, func(uint64, uint32) error { return nil }); (err != nil) != (test.says != "") {
				t.Errorf("%s: the dates: %v", name, err)
			}
			if _, _, _, err := read.Date(r, l, kind, 9, 1<<16); (err != nil) != test.edge {
				t.Errorf("%s: an edge: %v", name, err)
			}
			set := read.Set{Key: format.AppendRowKey(nil, kind, 9)}
			if _, err := set.LeafMembers(r, l, []uint64{1 << 16}); (err != nil) != test.leaf {
				t.Errorf("%s: members of leaves: %v", name, err)
			}
		})
	}
}
