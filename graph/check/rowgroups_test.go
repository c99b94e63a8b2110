package check

import (
	"bytes"
	"fmt"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// TestBrokenGroups: the rows of likers and reposters lie in groups, in stores with one writer. A problem of a row names the set,
// and one of a group names the group.
func TestBrokenGroups(t *testing.T) {
	grouped := func(breaks func(b *bench, group string) string) breakage {
		return func(b *bench) string {
			if b.Shared() {
				return ""
			}
			return breaks(b, string(b.row(2, b.id(post), dict.None)))
		}
	}
	// replace replaces the row of a set in its group.
	replace := func(b *bench, k kinds.Kind, subject dict.ID, row []byte) {
		key := string(b.row(k, subject, dict.None))
		_, first, err := format.ParseRowGroupKey([]byte(key))
		if err != nil {
			b.t.Fatal(err)
		}
		rows := map[dict.ID][]byte{}
		if err := format.EachRow(first, b.rows[key], func(subject dict.ID, row []byte) error { rows[subject] = row; return nil }); err != nil {
			b.t.Fatal(err)
		}
		rows[subject] = row
		var g format.RowGroup
		for id := first; id < first+16; id++ {
			if len(rows[id]) > 0 {
				g.Add(id, rows[id])
			}
		}
		b.rows[key] = g.Value
	}
	set := func(b *bench, k kinds.Kind, uri string) []byte { return format.AppendRowKey(nil, k, b.id(uri)) }
	testBroken(t, map[string]breakage{
		"a group in a store with several writers": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			key := format.AppendRowGroupKey(nil, 2, b.id(post))
			b.rows[string(key)] = nil
			return fmt.Sprintf("key %x of a row group: it does not fit this store's layout", key)
		},
		"a row beside the groups": grouped(func(b *bench, _ string) string {
			key := set(b, 2, post)
			b.rows[string(key)] = format.AppendRow(nil, b.id(post), 0, nil, []uint64{uint64(b.id(zoe))})
			return fmt.Sprintf("set key %x does not fit this store's layout", key)
		}),
		"the key of no group": grouped(func(b *bench, group string) string {
			b.rows[group+"\x01"] = nil
			return fmt.Sprintf("key %x of a row group: format: key %[1]x of a row group is malformed", group+"\x01")
		}),
		"a kind without groups": grouped(func(b *bench, group string) string {
			key := "o\x01" + group[2:]
			b.rows[key] = b.rows[group]
			return fmt.Sprintf("key %x of a row group", key)
		}),
		"a malformed group": grouped(func(b *bench, group string) string {
			b.rows[group] = append(bytes.Clone(b.rows[group]), 0)
			return fmt.Sprintf("row group %x: format: malformed row group", group)
		}),
		"a group in another form": grouped(func(b *bench, group string) string {
			v := b.rows[group]
			var longer []byte // the length of the first row in one byte more
			for i, c := range v {
				if c < 0x80 {
					longer = append(append(bytes.Clone(v[:i]), c|0x80, 0), v[i+1:]...)
					break
				}
			}
			b.rows[group] = longer
			return fmt.Sprintf("row group %x is %x; expected %x", group, longer, v)
		}),
		"a malformed row": grouped(func(b *bench, group string) string {
			replace(b, 2, b.id(post), []byte{0x81})
			return fmt.Sprintf("row group %x: format: malformed set row", group)
		}),
		"a row that keeps the removed": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page), format.AppendRow(nil, b.id(page), 0, []uint64{5}, []uint64{uint64(b.id(alice))}))
			return fmt.Sprintf("row %x keeps 1 removed members with nothing below it", set(b, 3, page))
		}),
		"a missing row": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page), nil)
			return fmt.Sprintf("actor %d has a repost record of %d, but is not in the subject's set", b.id(alice), b.id(page))
		}),
		"a row of another subject": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page)^1, format.AppendRow(nil, b.id(page)^1, 0, nil, []uint64{uint64(b.id(alice))}))
			return fmt.Sprintf("actor %d is in the repost set of %d, but has no such record", b.id(alice), b.id(page)^1)
		}),
		"a subject without a string": grouped(func(b *bench, _ string) string {
			free := b.id(page) + 1<<13
			replace(b, 3, free, format.AppendRow(nil, free, 0, nil, []uint64{uint64(b.id(alice))}))
			return fmt.Sprintf("subject %d has no string", free)
		}),
		"a member that is not repeated": grouped(func(b *bench, _ string) string {
			replace(b, 2, b.id(page), format.AppendRow(nil, b.id(page), 0, nil, []uint64{uint64(b.id(busy))}))
			return fmt.Sprintf("actor %d has several like records of %d, but is not a repeated member", b.id(busy), b.id(page))
		}),
		"containers under a row that was not spilled": grouped(func(b *bench, _ string) string {
			if !b.spilled {
				return ""
			}
			replace(b, 2, b.id(post), format.AppendRow(nil, b.id(post), 0, nil, []uint64{uint64(b.id(zoe))}))
			return fmt.Sprintf("container %x", set(b, 2, post))
		}),
	})
}
