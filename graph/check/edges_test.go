package check

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// at is a record of a TID. The stores have no others of its time.
func at(after uint64, subject dict.ID) format.Record {
	return format.Record{Path: format.Path{TID: 9<<40 + after}, Subject: subject}
}

// rawRecord is a record whose key is not a TID.
func rawRecord(rkey string) format.Record {
	return format.Record{Path: format.Path{Raw: []byte(rkey)}, Flags: format.NoSubject}
}

func TestBrokenChunks(t *testing.T) {
	const none = 4 // zoe has no records of this kind
	testBroken(t, map[string]breakage{
		"an unknown kind": func(b *bench) string {
			key := b.head(none, b.id(zoe), 0)
			delete(b.rows, key)
			key = "r\xc8" + key[2:]
			b.rows[key] = nil
			return fmt.Sprintf("record key %x is malformed, or of an unknown kind", key)
		},
		"a key that is neither a head's nor a leaf's": func(b *bench) string {
			key := b.head(none, b.id(zoe), math.MaxUint64) + "\x01"
			b.rows[key] = nil
			return fmt.Sprintf("record key %x is malformed, or of an unknown kind", key)
		},
		"an actor without a string": func(b *bench) string {
			b.head(1, b.free(), 0, at(1, b.id(alice)))
			return fmt.Sprintf("actor %d has no string", b.free())
		},
		"a leaf without a head": func(b *bench) string {
			r := at(1, b.id(alice))
			return fmt.Sprintf("chunk %x has no spilled head above it", b.leaf(none, b.id(zoe), r.Path, r))
		},
		"a leaf under a head that was not spilled": func(b *bench) string {
			r := at(1, b.id(alice))
			b.head(none, b.id(zoe), 0, r)
			return fmt.Sprintf("chunk %x has no spilled head above it", b.leaf(none, b.id(zoe), r.Path, r))
		},
		"a leaf after those of another actor": func(b *bench) string {
			r := at(1, b.id(alice))
			b.head(none, b.id(zoe), math.MaxUint64)
			b.leaf(none, b.id(zoe), r.Path, r)
			return fmt.Sprintf("chunk %x has no spilled head above it", b.leaf(none, b.id(zoe)+1, r.Path, r))
		},
		"an empty leaf": func(b *bench) string {
			b.head(none, b.id(zoe), math.MaxUint64)
			return fmt.Sprintf("leaf %x has a reach, or no records", b.leaf(none, b.id(zoe), at(1, 0).Path))
		},
		"a leaf above the reach of its head": func(b *bench) string {
			b.head(none, b.id(zoe), format.ReachOf(at(5, 0).Path)-1)
			return fmt.Sprintf("leaf %x has records above the reach of its head", b.leaf(none, b.id(zoe), at(6, 0).Path, at(4, b.id(alice)), at(5, b.id(alice))))
		},
		"a leaf with a reach": func(b *bench) string {
			r := at(1, b.id(alice))
			b.head(none, b.id(zoe), math.MaxUint64)
			key := b.leaf(none, b.id(zoe), r.Path)
			b.rows[key] = format.CoderOf(none, b.id(zoe)).Append(nil, 1, []format.Record{r})
			return fmt.Sprintf("leaf %x has a reach, or no records", key)
		},
		"a record after the end of its leaf": func(b *bench) string {
			b.head(none, b.id(zoe), math.MaxUint64)
			return fmt.Sprintf("leaf %x has records that belong elsewhere", b.leaf(none, b.id(zoe), at(6, 0).Path, at(5, b.id(alice)), at(7, b.id(alice))))
		},
		"a raw key in a leaf of TIDs": func(b *bench) string {
			b.head(none, b.id(zoe), math.MaxUint64)
			return fmt.Sprintf("leaf %x has records that belong elsewhere", b.leaf(none, b.id(zoe), at(6, 0).Path, at(5, b.id(alice)), rawRecord("self")))
		},
		"a record of the leaf before": func(b *bench) string {
			b.head(none, b.id(zoe), math.MaxUint64)
			b.leaf(none, b.id(zoe), at(6, 0).Path, at(5, b.id(alice)))
			return fmt.Sprintf("leaf %x has records that belong elsewhere", b.leaf(none, b.id(zoe), at(9, 0).Path, at(6, b.id(alice)), at(7, b.id(alice))))
		},
		"a raw key of the leaf before": func(b *bench) string {
			b.head(none, b.id(zoe), math.MaxUint64)
			b.leaf(none, b.id(zoe), rawRecord("b").Path, rawRecord("a"))
			return fmt.Sprintf("leaf %x has records that belong elsewhere", b.leaf(none, b.id(zoe), rawRecord("self").Path, rawRecord("a")))
		},
		"malformed": func(b *bench) string {
			key := b.head(none, b.id(zoe), 0)
			b.rows[key] = []byte{1}
			return fmt.Sprintf("chunk %x: %v", key, format.ErrChunk)
		},
		"a malformed leaf": func(b *bench) string {
			b.head(none, b.id(zoe), math.MaxUint64)
			key := b.leaf(none, b.id(zoe), at(1, 0).Path)
			b.rows[key] = []byte{1}
			return fmt.Sprintf("chunk %x: %v", key, format.ErrChunk)
		},
		"another form of a chunk": func(b *bench) string {
			key := b.head(none, b.id(zoe), 0, at(0, b.id(alice)))
			v := b.rows[key]
			other := append([]byte{v[0] | 1}, v[1:]...) // with a clock that equals the previous one
			n := bytes.IndexFunc(v, func(r rune) bool { return r < 0x80 }) + 1
			b.rows[key] = slices.Insert(other, n, 0, 0)
			return fmt.Sprintf("chunk %x is %x; expected %x", key, b.rows[key], v)
		},
		"a duplicate path": func(b *bench) string {
			r := at(7, b.id(alice))
			return fmt.Sprintf("chunk %x does not ascend", b.head(none, b.id(zoe), 0, r, r))
		},
		"a raw key that is a TID": func(b *bench) string {
			r := rawRecord(string(dict.AppendTID(nil, 12345)))
			return fmt.Sprintf("chunk %x has the invalid record key %q", b.head(none, b.id(zoe), 0, r), r.Path.Raw)
		},
		"a TID that names no time": func(b *bench) string {
			r := format.Record{Path: format.Path{TID: format.EndOfTime}, Subject: b.id(alice)}
			return fmt.Sprintf("chunk %x has the invalid record key %q", b.head(none, b.id(zoe), 0, r), r.Path.AppendRkey(nil))
		},
		"an invalid record key": func(b *bench) string {
			return fmt.Sprintf("chunk %x has the invalid record key %q", b.head(none, b.id(zoe), 0, rawRecord("a/b")), "a/b")
		},
		"removed from nothing": func(b *bench) string {
			r := format.Record{Path: at(1, 0).Path, Flags: format.Removed}
			return fmt.Sprintf("chunk %x keeps the removed %q with nothing below it", b.head(none, b.id(zoe), 0, r), r.Path.AppendRkey(nil))
		},
		"removed in a leaf": func(b *bench) string {
			r := format.Record{Path: at(1, 0).Path, Flags: format.Removed}
			b.head(none, b.id(zoe), math.MaxUint64)
			return fmt.Sprintf("chunk %x keeps the removed %q with nothing below it", b.leaf(none, b.id(zoe), r.Path, r), r.Path.AppendRkey(nil))
		},
	})
}

// TestBelowMalformedHead: what is below a malformed head, or in a malformed leaf, is not reported as well.
func TestBelowMalformedHead(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		for _, breaks := range []func(b *bench, head string){
			func(b *bench, head string) { b.rows[head] = append(b.rows[head], 1) },
			func(b *bench, _ string) { b.rows[b.leaf(4, b.id(zoe), at(9, 0).Path)] = []byte{1} },
		} {
			b := h.bench(t)
			head := b.head(4, b.id(zoe), math.MaxUint64)
			for i := range uint64(5) {
				r := at(i, b.id(alice))
				r.Flags, r.Subject = format.NoSubject, dict.None
				b.leaf(4, b.id(zoe), r.Path, r)
			}
			breaks(b, head)
			if found := b.problems(); len(found) != 2 || !strings.Contains(found[0], format.ErrChunk.Error()) || !strings.HasPrefix(found[1], "the counts are") {
				t.Errorf("%q", found)
			}
		}
	})
}

// row returns the key of the row that has a member of a set.
func (b *bench) row(k kinds.Kind, subject, member dict.ID) []byte {
	return b.AppendMemberKey(nil, k, subject, member)
}

// value returns the value of a set's row, or of the group that has only this row.
func (b *bench) value(k kinds.Kind, subject dict.ID, row []byte) []byte {
	if !format.HasGroups(k) {
		return row
	}
	var g format.RowGroup
	g.Add(subject, row)
	return g.Value
}

// spilledSet adds the row of a spilled set, in alice's partition, of a subject that has none yet. It returns the id of alice.
func (b *bench) spilledSet() (member uint64) {
	b.rows[string(b.row(4, b.id(zoe), b.id(alice)))] = format.AppendRow(nil, b.id(zoe), 1, nil, nil, nil)
	return uint64(b.id(alice))
}

// setLeaf adds a leaf of this set, up to a member, and returns its key.
func (b *bench) setLeaf(last, generation uint64, removed, members []uint64) (key string) {
	key = string(b.AppendSetLeafKey(nil, 4, b.id(zoe), dict.ID(last)))
	b.rows[key] = format.AppendRow(nil, b.id(zoe), generation, removed, members, nil)
	return key
}

func TestBrokenSets(t *testing.T) {
	testBroken(t, map[string]breakage{
		"an unknown kind": func(b *bench) string {
			key := string(format.AppendRowKey(nil, 200, 5))
			b.rows[key] = nil
			return fmt.Sprintf("set key %x is malformed, not of this store's layout, or of an unknown kind", key)
		},
		"a malformed row": func(b *bench) string {
			key := string(b.row(4, b.id(zoe), b.id(alice)))
			b.rows[key] = []byte{0x81}
			return fmt.Sprintf("set %x: format: malformed set row", key)
		},
		"a row in another form": func(b *bench) string {
			key := string(b.row(1, b.id(alice), b.id(zoe)))
			v := b.rows[key]
			_, rest, _ := strings.Cut(string(format.AppendRow(nil, b.id(alice), 1, nil, []uint64{uint64(b.id(zoe))}, nil)), "\x03")
			b.rows[key] = append([]byte{1}, rest...)
			return fmt.Sprintf("set %x is %x; expected %x", key, b.rows[key], v)
		},
		"removed from nothing": func(b *bench) string {
			key := b.row(4, b.id(zoe), b.id(alice))
			b.rows[string(key)] = format.AppendRow(nil, b.id(zoe), 0, []uint64{uint64(b.id(alice))}, nil, nil)
			return fmt.Sprintf("row %x keeps dates, or removed members, with nothing below it", key)
		},
		"dates with nothing below": func(b *bench) string {
			key := b.row(1, b.id(alice), b.id(zoe))
			b.rows[string(key)] = format.AppendRow(nil, b.id(alice), 0, nil, []uint64{uint64(b.id(zoe))}, []uint32{format.DateOf(format.Path{TID: postTID + 5})})
			return fmt.Sprintf("row %x keeps dates, or removed members, with nothing below it", key)
		},
		"an undated member that is none": func(b *bench) string {
			key, id := string(b.row(1, b.id(alice), b.id(zoe))), uint64(b.id(zoe))
			undated := format.AppendRow(nil, b.id(alice), 0, nil, []uint64{id + 1}, []uint32{format.Undated})
			plain := format.AppendRow(nil, b.id(alice), 0, nil, []uint64{id + 1}, nil)
			b.rows[key] = append(undated[:len(undated)-len(plain)], b.rows[key]...)
			return fmt.Sprintf("set %x: format: malformed set row", key)
		},
		"two records of a member whose date says that it has one": func(b *bench) string {
			b.add(1, b.id(zoe), at(7, b.id(alice)))
			return fmt.Sprintf("actor %d has several follow records of %d, and its date in the set, %d, says that it has one", b.id(zoe), b.id(alice), uint32(format.OneRecord))
		},
		"a wrong date in a row whose leaves are gone": func(b *bench) string {
			b.merge(b.row(1, b.id(alice), b.id(zoe)), format.AppendRow(nil, b.id(alice), 1, nil, []uint64{uint64(b.id(zoe))}, []uint32{7}))
			return fmt.Sprintf("actor %d has the date 7 in the follow set of %d, and no such record", b.id(zoe), b.id(alice))
		},
		"a member of another partition": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			member := b.id(zoe)
			key := b.row(1, b.id(alice), member)
			v := b.rows[string(key)]
			delete(b.rows, string(key))
			key[len(key)-1] ^= 1
			b.rows[string(key)] = v
			return fmt.Sprintf("set %x has member %d, which is in partition %d", key, member, b.Settings.PartitionOfID(member))
		},
		"a subject without a string": func(b *bench) string {
			member := uint64(b.id(alice))
			b.rows[string(b.row(1, b.free(), b.id(alice)))] = format.AppendRow(nil, b.free(), 0, nil, []uint64{member}, nil)
			return fmt.Sprintf("subject %d has no string", b.free())
		},
		"a leaf without a row": func(b *bench) string {
			m := b.spilledSet()
			delete(b.rows, string(b.row(4, b.id(zoe), b.id(alice))))
			return fmt.Sprintf("leaf %x has no spilled row above it", b.setLeaf(m, 0, nil, []uint64{m}))
		},
		"a leaf under a row that was not spilled": func(b *bench) string {
			m := b.spilledSet()
			b.rows[string(b.row(4, b.id(zoe), b.id(alice)))] = format.AppendRow(nil, b.id(zoe), 0, nil, []uint64{m}, nil)
			return fmt.Sprintf("leaf %x has no spilled row above it", b.setLeaf(m, 0, nil, []uint64{m}))
		},
		"a leaf of a partition whose row was not spilled": func(b *bench) string {
			b.spilledSet()
			if b.Settings.PartitionOfID(b.id(famous)) == b.Settings.PartitionOfID(b.id(alice)) {
				return ""
			}
			m := uint64(b.id(famous))
			return fmt.Sprintf("leaf %x has no spilled row above it", b.setLeaf(m, 0, nil, []uint64{m}))
		},
		"a malformed leaf": func(b *bench) string {
			m := b.spilledSet()
			key := b.setLeaf(m, 0, nil, []uint64{m})
			b.rows[key] = []byte{0x81}
			return fmt.Sprintf("set %x: format: malformed set row", key)
		},
		"an empty leaf": func(b *bench) string {
			return fmt.Sprintf("leaf %x has generation 0, 0 removed members, and 0 members", b.setLeaf(b.spilledSet(), 0, nil, nil))
		},
		"a leaf with removed members": func(b *bench) string {
			m := b.spilledSet()
			return fmt.Sprintf("leaf %x has generation 0, 1 removed members, and 1 members", b.setLeaf(m, 0, []uint64{m - 1}, []uint64{m}))
		},
		"a leaf with a generation": func(b *bench) string {
			m := b.spilledSet()
			return fmt.Sprintf("leaf %x has generation 3, 0 removed members, and 1 members", b.setLeaf(m, 3, nil, []uint64{m}))
		},
		"a leaf with a duplicate member": func(b *bench) string {
			m := b.spilledSet()
			return fmt.Sprintf("set %x: format: malformed set row", b.setLeaf(m, 0, nil, []uint64{m, m}))
		},
		"a member after the end of its leaf": func(b *bench) string {
			m := b.spilledSet()
			return fmt.Sprintf("leaf %x has members that belong elsewhere", b.setLeaf(m, 0, nil, []uint64{m, m + 1}))
		},
		"a member of the leaf before": func(b *bench) string {
			m := b.spilledSet()
			b.setLeaf(m+2, 0, nil, []uint64{m})
			return fmt.Sprintf("leaf %x has members that belong elsewhere", b.setLeaf(m+5, 0, nil, []uint64{m + 2, m + 4}))
		},
		"a leaf's member of another partition": func(b *bench) string {
			m, other := b.spilledSet(), b.id(famous)
			if b.Settings.PartitionOfID(other) == b.Settings.PartitionOfID(b.id(alice)) {
				return ""
			}
			key := b.setLeaf(m, 0, nil, []uint64{uint64(other)})
			return fmt.Sprintf("set %x has member %d, which is in partition %d", key, other, b.Settings.PartitionOfID(other))
		},
	})
}

// TestLeafMembers: members of leaves that end with others' members, or that a row overrides, are not reported.
func TestLeafMembers(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		m := b.spilledSet()
		b.setLeaf(m+2, 0, nil, []uint64{m + 1, m + 2})
		b.setLeaf(m+9, 0, nil, []uint64{m + 3})
		b.rows[string(b.row(4, b.id(zoe), b.id(alice)))] = format.AppendRow(nil, b.id(zoe), 1, []uint64{m + 1, m + 2, m + 3}, nil, nil)
		for _, p := range b.problems() {
			t.Error(p)
		}
	})
}

// TestBrokenEdges: if records and sets differ, Verify reads them again, and names
// each that is on one side only.
func TestBrokenEdges(t *testing.T) {
	noRecord := func(b *bench, k, actor, subject string) string {
		return fmt.Sprintf("actor %d is in the %s set of %d, but has no such record", b.id(actor), k, b.id(subject))
	}
	noMember := func(b *bench, k, actor, subject string) string {
		return fmt.Sprintf("actor %d has a %s record of %d, but is not in the subject's set", b.id(actor), k, b.id(subject))
	}
	testBroken(t, map[string]breakage{
		"a missing record": func(b *bench) string {
			delete(b.rows, b.first(format.KeyRecord, func(k string, _ []byte) bool {
				return strings.HasPrefix(k, string(format.AppendRecordsKey(nil, 1, b.id(zoe))))
			}))
			return noRecord(b, "follow", zoe, alice)
		},
		"a record with another subject, the set of the new one": func(b *bench) string {
			b.add(1, b.id(zoe), format.Record{Path: format.Path{TID: postTID + 5}, Subject: b.id(famous)})
			return noMember(b, "follow", zoe, famous)
		},
		"an extra record": func(b *bench) string {
			b.add(2, b.id(zoe), at(5, b.id(post)))
			return noMember(b, "like", zoe, post)
		},
		"a missing member": func(b *bench) string {
			delete(b.rows, string(b.row(1, b.id(alice), b.id(zoe))))
			return noMember(b, "follow", zoe, alice)
		},
		"an extra member": func(b *bench) string {
			b.merge(b.row(2, b.id(page), b.id(zoe)), b.value(2, b.id(page), format.AppendRow(nil, b.id(page), 0, nil, []uint64{uint64(b.id(zoe))}, nil)))
			return noRecord(b, "like", zoe, page)
		},
		"a member of a leaf, removed by its row": func(b *bench) string {
			if !b.spilled {
				return ""
			}
			b.merge(b.row(1, b.id(famous), b.id(alice)), format.AppendRow(nil, b.id(famous), 0, []uint64{uint64(b.id(alice))}, nil, nil))
			return noMember(b, "follow", alice, famous)
		},
		"a missing leaf of a set": func(b *bench) string {
			if !b.spilled {
				return ""
			}
			set := string(format.AppendRowKey(nil, 1, b.id(famous)))
			delete(b.rows, b.first(format.KeyReverse, func(k string, _ []byte) bool {
				_, _, _, _, isLeaf, err := b.ParseSetKey([]byte(k))
				return err == nil && isLeaf && strings.HasPrefix(k, set)
			}))
			return fmt.Sprintf("has a follow record of %d, but is not in the subject's set", b.id(famous))
		},
		"the numbers of edges": func(b *bench) string {
			delete(b.rows, string(b.row(1, b.id(alice), b.id(zoe))))
			return "edges, the sets"
		},
	})
}

// TestErasedEdges: accounts that are being erased have lost some of their edges; Verify ignores
// the rest.
func TestErasedEdges(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		prefix := string(format.AppendRecordsKey(nil, 2, b.id(erased)))
		key := b.first(format.KeyRecord, func(k string, v []byte) bool { return strings.HasPrefix(k, prefix) && len(v) > 14 })
		if key == "" {
			t.Fatal("there is no record to delete")
		}
		id := uint64(b.id(erased))
		b.merge(b.row(1, b.id(famous), b.id(erased)), format.AppendRow(nil, b.id(famous), 0, nil, []uint64{id}, nil))
		for _, p := range b.problems() {
			t.Error(p)
		}
		delete(b.rows, key) // the counts, of the account and of the store, still include the record
		if found := b.problems(); len(found) < 3 || !strings.HasPrefix(found[1], fmt.Sprintf("account %d ", id)) || !strings.HasPrefix(found[len(found)-1], "the counts are") {
			t.Errorf("%q", found)
		}
	})
}
