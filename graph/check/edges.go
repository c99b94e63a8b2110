package check

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// edgeSum is the number of edges, and the sum of their hashes. Their order does not matter.
type edgeSum struct {
	n    uint64
	hash [2]uint64
}

// add adds the hash of an edge.
func (s *edgeSum) add(edge []byte, seed uint64) {
	h := xxh3.Hash128Seed(edge, seed)
	var carry uint64
	s.n++
	s.hash[0], carry = bits.Add64(s.hash[0], h.Lo, 0)
	s.hash[1], _ = bits.Add64(s.hash[1], h.Hi, carry)
}

func (v *checker) add(sums map[kinds.Kind]edgeSum, k kinds.Kind, actor, subject uint64) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], actor)
	binary.LittleEndian.PutUint64(b[8:], subject)
	s := sums[k]
	s.add(b[:], v.seed)
	sums[k] = s
}

// edges reads the records and the sets, each in their own order, and compares them.
func (v *checker) edges() error {
	if err := v.ofDates().readDates(); err != nil {
		return err
	}
	v.summing = true
	counted := v.counts.Records
	if err := v.parallel(
		func(w *checker) error {
			err := w.eachActor(func(k kinds.Kind, actor dict.ID, subjects []uint64) error {
				for _, s := range subjects {
					w.add(w.records, k, uint64(actor), s)
				}
				return nil
			})
			counted = w.counts.Records
			if err == nil {
				err = w.ofDates().lookUpRepeated()
			}
			return err
		},
		func(w *checker) error {
			return w.eachSet(func(k kinds.Kind, subject dict.ID, members []uint64) error {
				for _, m := range members {
					if k.IsLabel() || !w.erasing[dict.ID(m)] {
						w.add(w.sets, k, m, uint64(subject))
					}
				}
				return nil
			})
		},
		func(w *checker) error {
			w.dictionary.r = w.r
			return w.dictionary.readIDs()
		},
		func(w *checker) error { return w.ofDates().sumDates() },
	); err != nil {
		return err
	}
	v.counts.Records = counted
	for _, ns := range dict.Namespaces {
		v.counts.Strings[ns.String()] = v.dictionary.strings[ns]
	}
	if err := v.ofLabels().labels(func(k kinds.Kind, member, set dict.ID) { v.add(v.records, k, uint64(member), uint64(set)) }); err != nil {
		return err
	}
	v.summing = false
	if err := v.ofDates().compareDates(); err != nil {
		return err
	}
	for k := range v.eachKind {
		if v.records[k.Kind] == v.sets[k.Kind] || v.damage.any() {
			continue
		}
		v.broken("the records have %d %s edges, the sets %d, and they differ", v.records[k.Kind].n, k.Name, v.sets[k.Kind].n)
		if v.unreadable {
			continue // lookups of single edges would fail
		}
		if err := v.compareEdges(k.Kind); err != nil {
			return err
		}
	}
	return nil
}

// compareEdges reports the edges that are on one side only. For each edge it needs a lookup,
// or all records of an actor.
func (v *checker) compareEdges(kind kinds.Kind) error {
	err := v.eachActor(func(k kinds.Kind, actor dict.ID, subjects []uint64) error {
		if k != kind {
			return nil
		}
		for _, s := range subjects {
			has, err := read.HasEdge(v.r, v.Layout, k, actor, dict.ID(s))
			if err != nil {
				return err
			}
			if !has {
				v.broken("actor %d has a %s record of %d, but is not in the subject's set", actor, k, s)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var failed error
	if err := v.ofLabels().labels(func(k kinds.Kind, member, set dict.ID) {
		if k != kind || failed != nil {
			return
		}
		var has bool
		if has, failed = read.HasEdge(v.r, v.Layout, k, member, set); failed == nil && !has {
			v.broken("%d has the %s %d, but is not in the label's set", member, v.kinds.Info(k).Name, set)
		}
	}); err != nil || failed != nil {
		return cmp.Or(failed, err)
	}
	return v.eachSet(func(k kinds.Kind, subject dict.ID, members []uint64) error {
		for _, m := range members {
			if k != kind || v.erasing[dict.ID(m)] && !k.IsLabel() {
				continue
			}
			found := false
			if err := read.Records(v.r, k, dict.ID(m), func(r *format.Record) bool {
				found = found || r.Subject == subject
				return !found
			}); err != nil {
				return err
			}
			if !found {
				v.broken("actor %d is in the %s set of %d, but has no such record", m, k, subject)
			}
		}
		return nil
	})
}

// bucketReader gathers the records of an actor and kind from a scan.
type bucketReader struct {
	kind    kinds.Kind
	actor   dict.ID
	bucket  uint16
	above   [format.MaxChunkDepth + 1][]byte // the keys of the spilled chunks above, by depth
	chunks  int
	records []format.Record // of the bucket
	raw     []byte
	all     []uint64 // the subjects of the actor
	dated   []datedSubject
}

// eachActor reads all records, checks their form, counts them, and calls each with the
// ascending subjects of every actor and kind. It counts the records of accounts that are
// being erased, but does not call each for them.
func (v *checker) eachActor(each func(k kinds.Kind, actor dict.ID, subjects []uint64) error) error {
	b := &v.reader
	*b = bucketReader{}
	v.counts.Records = format.Counts{}.Clone().Records
	if err := v.scan([]byte{format.KeyRecord}, func(key, value []byte) error {
		k, actor, bucket, depth, err := format.ParseChunkKey(key)
		if err != nil || v.kinds.Info(k) == nil || k.IsLabel() {
			v.broken("record key %x is malformed, or of an unknown kind", key)
			return nil //nolint:nilerr // it is reported
		}
		if b.kind != k || b.actor != actor || b.bucket != bucket {
			v.endBucket()
			b.bucket, b.chunks = bucket, 0
			if b.kind != k || b.actor != actor {
				if err := v.endActor(each); err != nil {
					return err
				}
				b.kind, b.actor = k, actor
				v.named(dict.DID, actor, "actor")
			}
		}
		v.chunk(key, value, depth)
		return nil
	}); err != nil {
		return err
	}
	v.endBucket()
	return v.endActor(each)
}

// chunk reads and checks one chunk of the bucket.
func (v *checker) chunk(key, value []byte, depth int) {
	b := &v.reader
	if depth > 0 && !v.erasing[b.actor] && !bytes.Equal(b.above[depth-1], key[:len(key)-1]) {
		v.broken("chunk %x has no spilled chunk above it", key)
	}
	b.chunks++
	start := len(b.raw)
	b.raw = append(b.raw, value...)
	value = b.raw[start:]
	c := format.CoderOf(b.kind, b.actor, b.bucket)
	from := len(b.records)
	var generation uint64
	var err error
	if b.records, generation, err = c.Read(b.records, value, uint32(depth)); err != nil {
		v.broken("chunk %x: %v", key, err)
		v.unreadable = true
		return
	}
	b.above[depth] = b.above[depth][:0]
	if generation > 0 {
		b.above[depth] = append(b.above[depth], key...)
	}
	mine := b.records[from:]
	if again := c.AppendStored(nil, generation, mine); string(again) != string(value) && string(c.Append(nil, generation, mine)) != string(value) {
		v.broken("chunk %x is %x; expected %x", key, value, again)
	}
	for i := range mine {
		r := &mine[i]
		if i > 0 && format.CompareEntries(&mine[i-1], r) >= 0 {
			v.broken("chunk %x does not ascend", key)
		}
		if string(format.AppendChunkKey(nil, b.kind, b.actor, r.Path, depth)) != string(key) {
			v.broken("chunk %x has %q, which belongs elsewhere", key, r.Path.AppendRkey(nil))
		}
		if r.Path.Raw != nil {
			if _, isTID := dict.ParseTID(r.Path.Raw); isTID || !dict.ValidRkey(r.Path.Raw) {
				v.broken("chunk %x has the invalid record key %q", key, r.Path.Raw)
			}
		}
		if r.Flags == format.Removed && generation == 0 {
			v.broken("chunk %x keeps the removed %q with nothing below it", key, r.Path.AppendRkey(nil))
		}
	}
}

func (v *checker) endBucket() {
	b := &v.reader
	for r := range format.Live(b.records, b.chunks) {
		v.counts.Records[v.kinds.Info(b.kind).Name]++
		if r.Subject != dict.None {
			b.all = append(b.all, uint64(r.Subject))
			if v.summing && v.dates.isLarge(b.kind, uint64(r.Subject)) {
				b.dated = append(b.dated, datedSubject{uint64(r.Subject), format.DateOf(r.Path)})
			}
		}
	}
	b.records, b.raw, b.chunks = b.records[:0], b.raw[:0], 0
}

func (v *checker) endActor(each func(k kinds.Kind, actor dict.ID, subjects []uint64) error) error {
	b := &v.reader
	if b.kind == 0 {
		return nil
	}
	slices.Sort(b.all)
	defer func() { b.all, b.dated = b.all[:0], b.dated[:0] }()
	if v.erasing[b.actor] {
		return nil
	}
	if v.summing {
		slices.SortFunc(b.dated, func(x, y datedSubject) int { return cmp.Compare(x.subject, y.subject) })
		if err := v.noteRepeated(b.kind, b.actor, b.all, b.dated); err != nil {
			return err
		}
	}
	b.all = slices.Compact(b.all)
	v.ofDates().datedRecords(b.kind, b.actor, b.dated)
	return each(b.kind, b.actor, b.all)
}
