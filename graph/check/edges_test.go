package check

import (
	"fmt"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// at is a record of a TID, an offset after the start of a bucket.
func at(bucket uint16, after uint64, subject dict.ID) format.Record {
	return format.Record{Path: format.Path{TID: uint64(bucket)<<format.BucketShift + after}, Subject: subject}
}

// rawRecord is a record whose key is not a TID.
func rawRecord(rkey string) format.Record {
	return format.Record{Path: format.Path{Raw: []byte(rkey)}, Flags: format.NoSubject}
}

func TestBrokenChunks(t *testing.T) {
	const empty = 9 // a bucket without records
	testBroken(t, map[string]breakage{
		"an unknown kind": func(b *bench) string {
			key := b.chunk(1, b.id(alice), empty, 0)
			delete(b.rows, key)
			key = "r\xc8" + key[2:]
			b.rows[key] = nil
			return fmt.Sprintf("record key %x is malformed, or of an unknown kind", key)
		},
		"an actor without a string": func(b *bench) string {
			b.chunk(1, b.free(), empty, 0, at(empty, 1, b.id(alice)))
			return fmt.Sprintf("actor %d has no string", b.free())
		},
		"a chunk under an unspilled parent": func(b *bench) string {
			key := b.chunk(1, b.id(alice), empty, 0) + "\x00"
			b.rows[key] = nil
			return fmt.Sprintf("chunk %x has no spilled chunk above it", key)
		},
		"a chunk two levels under a spilled one": func(b *bench) string {
			key := b.chunk(1, b.id(alice), empty, 1) + "\x00\x00"
			b.rows[key] = nil
			return fmt.Sprintf("chunk %x has no spilled chunk above it", key)
		},
		"a chunk two levels down without its parent, beside a spilled one": func(b *bench) string {
			top := b.chunk(1, b.id(alice), empty, 1)
			key := top + "\x03\x04"
			b.rows[top+"\x01"] = b.rows[top]
			b.rows[key] = format.CoderOf(1, b.id(alice), empty).Append(nil, 0, []format.Record{at(empty, 0x0304<<34, b.id(alice))})
			return fmt.Sprintf("chunk %x has no spilled chunk above it", key)
		},
		"malformed": func(b *bench) string {
			key := b.chunk(1, b.id(alice), empty, 0)
			b.rows[key] = []byte{1}
			return fmt.Sprintf("chunk %x: %v", key, format.ErrChunk)
		},
		"another form of a chunk": func(b *bench) string {
			key := b.chunk(1, b.id(alice), empty, 0, at(empty, 0, b.id(alice)))
			v := b.rows[key]
			b.rows[key] = []byte{1, 0, 0, 0} // with a clock that equals the previous one
			return fmt.Sprintf("chunk %x is 01000000; expected %x", key, v)
		},
		"a duplicate path": func(b *bench) string {
			r := at(empty, 7, b.id(alice))
			return fmt.Sprintf("chunk %x does not ascend", b.chunk(1, b.id(alice), empty, 0, r, r))
		},
		"a record of another bucket": func(b *bench) string {
			r := at(empty+1, 7, b.id(alice))
			return fmt.Sprintf("chunk %x has %q, which belongs elsewhere", b.chunk(1, b.id(alice), empty, 0, r), r.Path.AppendRkey(nil))
		},
		"a record of another chunk of the bucket": func(b *bench) string {
			key := b.chunk(1, b.id(alice), empty, 1) + "\x05"
			r := at(empty, 6<<42, b.id(alice))
			b.rows[key] = format.CoderOf(1, b.id(alice), empty).Append(nil, 0, []format.Record{r})
			return fmt.Sprintf("chunk %x has %q, which belongs elsewhere", key, r.Path.AppendRkey(nil))
		},
		"a raw key that is a TID": func(b *bench) string {
			r := rawRecord(string(dict.AppendTID(nil, 12345)))
			return fmt.Sprintf("chunk %x has the invalid record key %q", b.chunk(1, b.id(alice), r.Path.Bucket(), 0, r), r.Path.Raw)
		},
		"an invalid record key": func(b *bench) string {
			r := rawRecord("a/b")
			return fmt.Sprintf("chunk %x has the invalid record key %q", b.chunk(1, b.id(alice), r.Path.Bucket(), 0, r), "a/b")
		},
		"removed from nothing": func(b *bench) string {
			r := format.Record{Path: at(empty, 1, 0).Path, Flags: format.Removed}
			return fmt.Sprintf("chunk %x keeps the removed %q with nothing below it", b.chunk(1, b.id(alice), empty, 0, r), r.Path.AppendRkey(nil))
		},
	})
}

// row returns the key of the row that has a member of a set.
func (b *bench) row(k kinds.Kind, subject, member dict.ID) []byte {
	return b.AppendMemberKey(nil, k, subject, member)
}

// value returns the value of a set's row, or of the group that has only this row.
func (b *bench) value(k kinds.Kind, subject dict.ID, row []byte) []byte {
	if !b.Grouped(k) {
		return row
	}
	var g format.RowGroup
	g.Add(subject, row)
	return g.Value
}

// newSet adds a spilled set of page, which has none yet, with a member in alice's container,
// and returns the container's key.
func (b *bench) newSet(v []byte) (container string) {
	row := b.row(4, b.id(zoe), b.id(alice))
	b.rows[string(row)] = format.AppendRow(nil, b.id(zoe), 1, nil, nil)
	container = string(format.AppendContainerKey(nil, row, format.BlockOf(uint64(b.id(alice)))))
	b.rows[container] = v
	return container
}

func TestBrokenSets(t *testing.T) {
	testBroken(t, map[string]breakage{
		"an unknown kind": func(b *bench) string {
			key := string(format.AppendRowKey(nil, 200, 5))
			b.rows[key] = nil
			return fmt.Sprintf("set key %x is malformed, or of an unknown kind", key)
		},
		"a malformed row": func(b *bench) string {
			key := string(b.row(4, b.id(zoe), b.id(alice)))
			b.rows[key] = []byte{0x81}
			return fmt.Sprintf("set %x: format: malformed set row", key)
		},
		"a row in another form": func(b *bench) string {
			key := string(b.row(1, b.id(alice), b.id(zoe)))
			v := b.rows[key]
			_, rest, _ := strings.Cut(string(format.AppendRow(nil, b.id(alice), 1, nil, []uint64{uint64(b.id(zoe))})), "\x03")
			b.rows[key] = append([]byte{1}, rest...)
			return fmt.Sprintf("row %x is %x; expected %x", key, b.rows[key], v)
		},
		"removed from nothing": func(b *bench) string {
			key := b.row(4, b.id(zoe), b.id(alice))
			b.rows[string(key)] = format.AppendRow(nil, b.id(zoe), 0, []uint64{uint64(b.id(alice))}, nil)
			return fmt.Sprintf("row %x keeps 1 removed members with nothing below it", key)
		},
		"a repeated member that is none": func(b *bench) string {
			key := string(b.row(1, b.id(alice), b.id(zoe)))
			b.rows[key] = append(format.AppendRepeated(nil, b.id(alice), []uint64{uint64(b.id(zoe)) + 1}), b.rows[key]...)
			return fmt.Sprintf("row %x has %d as a repeated member, but not as a member", key, b.id(zoe)+1)
		},
		"a repeated member above containers": func(b *bench) string {
			key := string(b.row(4, b.id(zoe), b.id(alice)))
			id := []uint64{uint64(b.id(alice))}
			b.rows[key] = format.AppendRow(format.AppendRepeated(nil, b.id(zoe), id), b.id(zoe), 1, nil, id)
			return fmt.Sprintf("row %x has repeated members; rows of its kind, or above containers, have none", key)
		},
		"two records of a member that is not repeated": func(b *bench) string {
			b.chunk(1, b.id(zoe), 900, 0, at(900, 7, b.id(alice)))
			return fmt.Sprintf("actor %d has several follow records of %d, but is not a repeated member", b.id(zoe), b.id(alice))
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
			return fmt.Sprintf("row %x has member %d, which is in partition %d", key, member, b.Settings.PartitionOfID(member))
		},
		"a subject without a string": func(b *bench) string {
			member := uint64(b.id(alice))
			b.rows[string(b.row(1, b.free(), b.id(alice)))] = format.AppendRow(nil, b.free(), 0, nil, []uint64{member})
			return fmt.Sprintf("subject %d has no string", b.free())
		},
		"a container under an unspilled row": func(b *bench) string {
			key := b.newSet(format.AppendContainer(nil, []uint16{5}, nil))
			b.rows[string(b.row(4, b.id(zoe), b.id(alice)))] = nil
			return fmt.Sprintf("container %x has no spilled row above it", key)
		},
		"a malformed container": func(b *bench) string {
			return fmt.Sprintf("set %x: %v", b.newSet([]byte{0, 1, 2, 3}), format.ErrContainer)
		},
		"a container with a duplicate member": func(b *bench) string {
			return fmt.Sprintf("container %x does not ascend", b.newSet(format.AppendContainer(nil, []uint16{5, 5}, nil)))
		},
		"removed from a container": func(b *bench) string {
			return fmt.Sprintf("container %x keeps 2 removed members with nothing below it", b.newSet(format.AppendContainer(nil, nil, []uint16{5, 6})))
		},
	})
}

// TestBrokenEdges: if records and sets differ, Verify compares them edge by edge, and names
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
			p := at(uint16(postTID>>format.BucketShift), (postTID+5)%(1<<format.BucketShift), b.id(famous))
			b.chunk(1, b.id(zoe), p.Path.Bucket(), 0, p)
			return noMember(b, "follow", zoe, famous)
		},
		"an extra record": func(b *bench) string {
			b.chunk(2, b.id(zoe), 9, 0, at(9, 5, b.id(post)))
			return noMember(b, "like", zoe, post)
		},
		"a missing member": func(b *bench) string {
			delete(b.rows, string(b.row(1, b.id(alice), b.id(zoe))))
			return noMember(b, "follow", zoe, alice)
		},
		"an extra member": func(b *bench) string {
			b.merge(b.row(2, b.id(page), b.id(zoe)), b.value(2, b.id(page), format.AppendRow(nil, b.id(page), 0, nil, []uint64{uint64(b.id(zoe))})))
			return noRecord(b, "like", zoe, page)
		},
		"a member of a container, removed by its row": func(b *bench) string {
			if !b.spilled {
				return ""
			}
			b.merge(b.row(1, b.id(famous), b.id(alice)), format.AppendRow(nil, b.id(famous), 0, []uint64{uint64(b.id(alice))}, nil))
			return noMember(b, "follow", alice, famous)
		},
		"a missing container": func(b *bench) string {
			if !b.spilled {
				return ""
			}
			set := string(format.AppendRowKey(nil, 1, b.id(famous)))
			delete(b.rows, b.first(format.KeyReverse, func(k string, _ []byte) bool {
				_, _, _, isRow, err := format.ParseReverseKey([]byte(k))
				return err == nil && !isRow && strings.HasPrefix(k, set)
			}))
			return fmt.Sprintf("has a follow record of %d, but is not in the subject's set", b.id(famous))
		},
		"the numbers of edges": func(b *bench) string {
			delete(b.rows, string(b.row(1, b.id(alice), b.id(zoe))))
			return "follow edges, the sets"
		},
	})
}

// TestErasedEdges: accounts that are being erased have lost some of their edges; Verify ignores
// the rest.
func TestErasedEdges(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		prefix := string(format.AppendRecordsKey(nil, 1, b.id(erased)))
		key := b.first(format.KeyRecord, func(k string, _ []byte) bool { return strings.HasPrefix(k, prefix) })
		if key == "" {
			t.Fatal("there is no record to delete")
		}
		id := uint64(b.id(erased))
		b.merge(b.row(1, b.id(famous), b.id(erased)), format.AppendRow(nil, b.id(famous), 0, nil, []uint64{id}))
		for _, p := range b.problems() {
			t.Error(p)
		}
		delete(b.rows, key) // the counts still include the record
		if found := b.problems(); len(found) != 1 || !strings.HasPrefix(found[0], "the counts are") {
			t.Errorf("%q", found)
		}
	})
}
