package check

import (
	"bytes"
	"fmt"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// TestBrokenGroups: the rows of likers and reposters lie in groups. A problem of a row names the set, and one of a group names the group.
func TestBrokenGroups(t *testing.T) {
	grouped := func(breaks func(b *bench, group string) string) breakage {
		return func(b *bench) string {
			return breaks(b, string(b.row(2, b.id(post), b.id("did:plc:reader"))))
		}
	}
	// replace replaces the row of a set that has a member in its group.
	replace := func(b *bench, k kinds.Kind, subject dict.ID, member string, row []byte) {
		key := string(b.row(k, subject, b.id(member)))
		_, first, err := format.ParseRowGroupKey([]byte(key))
		must(b.t, err)
		rows := map[dict.ID][]byte{}
		must(b.t, format.EachRow(first, b.rows[key], func(subject dict.ID, row []byte) error { rows[subject] = row; return nil }))
		rows[subject] = row
		var g format.RowGroup
		for id := first &^ 15; id < first&^15+16; id++ {
			if len(rows[id]) > 0 {
				g.Add(id, rows[id])
			}
		}
		b.rows[key] = g.Value
	}
	set := func(b *bench, k kinds.Kind, uri string) []byte { return format.AppendRowKey(nil, k, b.id(uri)) }
	testBroken(t, map[string]breakage{
		"a group key of another layout": grouped(func(b *bench, group string) string {
			key := group[:len(group)-1]
			if !b.Shared() {
				key = group + "\x00"
			}
			member := b.id("did:plc:reader")
			b.rows[key] = b.value(2, b.id(post), format.AppendRow(nil, b.id(post), 0, nil, []uint64{uint64(member)}, nil))
			return fmt.Sprintf("row group %x has member %d of %d, which belongs elsewhere", key, member, b.id(post))
		}),
		"a group of another size": grouped(func(b *bench, _ string) string {
			l := b.Layout
			if l.Settings.Group = 1; b.Settings.Group == 1 {
				l.Settings.Group = 256
			}
			subject, member := b.id(page)|1, b.id(alice)
			key := string(l.AppendMemberKey(nil, 2, subject, member))
			b.rows[key] = b.value(2, subject, format.AppendRow(nil, subject, 0, nil, []uint64{uint64(member)}, nil))
			return fmt.Sprintf("row group %x has member %d of %d, which belongs elsewhere", key, member, subject)
		}),
		"a row beside the groups": grouped(func(b *bench, _ string) string {
			key := set(b, 2, post)
			b.rows[string(key)] = format.AppendRow(nil, b.id(post), 0, nil, []uint64{uint64(b.id(zoe))}, nil)
			return fmt.Sprintf("set key %x is malformed, not of this store's layout", key)
		}),
		"the key of no group": grouped(func(b *bench, group string) string {
			b.rows[group+"\x01\x01"] = nil
			return fmt.Sprintf("key %x of a row group: format: key %[1]x of a row group is malformed", group+"\x01\x01")
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
			replace(b, 2, b.id(post), "did:plc:reader", []byte{0x81})
			return fmt.Sprintf("row group %x: format: malformed set row", group)
		}),
		"a row that keeps the removed": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page), alice, format.AppendRow(nil, b.id(page), 0, []uint64{5}, []uint64{uint64(b.id(alice))}, nil))
			return fmt.Sprintf("row %x keeps dates, or removed members, with nothing below it", set(b, 3, page))
		}),
		"a missing row": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page), alice, nil)
			return fmt.Sprintf("actor %d has a repost record of %d, but is not in the subject's set", b.id(alice), b.id(page))
		}),
		"a row of another subject": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page)^1, alice, format.AppendRow(nil, b.id(page)^1, 0, nil, []uint64{uint64(b.id(alice))}, nil))
			return fmt.Sprintf("actor %d is in the repost set of %d, but has no such record", b.id(alice), b.id(page)^1)
		}),
		"a subject without a string": grouped(func(b *bench, _ string) string {
			free := b.id(page) + 1<<13
			replace(b, 3, free, alice, format.AppendRow(nil, free, 0, nil, []uint64{uint64(b.id(alice))}, nil))
			return fmt.Sprintf("subject %d has no string", free)
		}),
		"several records of a member whose date says that it has one": grouped(func(b *bench, _ string) string {
			replace(b, 2, b.id(page), busy, format.AppendRow(nil, b.id(page), 0, nil, []uint64{uint64(b.id(busy))}, nil))
			return fmt.Sprintf("actor %d has several like records of %d, and its date in the set", b.id(busy), b.id(page))
		}),
		"a wrong date in a row whose leaves are gone": grouped(func(b *bench, _ string) string {
			replace(b, 3, b.id(page), alice, format.AppendRow(nil, b.id(page), 1, nil, []uint64{uint64(b.id(alice))}, []uint32{7}))
			return fmt.Sprintf("actor %d has the date 7 in the repost set of %d, and no such record", b.id(alice), b.id(page))
		}),
		"a leaf of a partition whose row was not spilled": grouped(func(b *bench, _ string) string {
			here, there := b.id(alice), b.id(famous)
			if b.Settings.PartitionOfID(here) == b.Settings.PartitionOfID(there) {
				return ""
			}
			replace(b, 3, b.id(page), alice, format.AppendRow(nil, b.id(page), 1, nil, []uint64{uint64(here)}, []uint32{format.OneRecord}))
			key := string(b.AppendSetLeafKey(nil, 3, b.id(page), there))
			b.rows[key] = format.AppendRow(nil, b.id(page), 0, nil, []uint64{uint64(there)}, nil)
			return fmt.Sprintf("leaf %x has no spilled row above it", key)
		}),
		"leaves under rows that were not spilled": grouped(func(b *bench, _ string) string {
			if !b.spilled {
				return ""
			}
			for k := range b.rows {
				if k[:2] == "o\x02" {
					delete(b.rows, k)
				}
			}
			return fmt.Sprintf("leaf %x", set(b, 2, post))
		}),
	})
}
