package check

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
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
					if k.IsSelf() { // there is no set to compare it with
						w.named(dict.URI, dict.ID(s), "record")
						continue
					}
					w.add(w.records, k, uint64(actor), s)
				}
				return nil
			})
			counted = w.counts.Records
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
		v.counts.Strings[ns.String()] = int64(v.dictionary.forward[ns].n)
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
	for k := kinds.Kind(1); k <= kinds.LastBuiltIn; k++ {
		if v.stated[k] != v.counted[k] && !v.damage.any() && !v.unreadable {
			v.broken("the states of the accounts count their %s records, and not as many as there are", v.kinds.Info(k).Name)
			if err := compareCounts(v, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareCounts reports the accounts whose states count other numbers of records than they have.
func compareCounts(v *checker, k kinds.Kind) error {
	return v.scan([]byte{format.KeyAccount}, func(key, value []byte) error {
		return v.EachState(key, value, func(id dict.ID, st format.RepoState) error {
			n := uint32(0)
			err := read.Records(v.r, k, id, func(*format.Record) bool { n++; return true })
			if err == nil && n != st.Records[k-1] {
				v.broken("account %d has %d %s records, its state counts %d", id, n, v.kinds.Info(k).Name, st.Records[k-1])
			}
			return err
		})
	})
}

// compareEdges reports the edges that are on one side only. For each edge it needs a lookup,
// or all records of an actor.
func (v *checker) compareEdges(kind kinds.Kind) error {
	err := v.eachActor(func(k kinds.Kind, actor dict.ID, subjects []uint64) error {
		if k != kind {
			return nil
		}
		for _, s := range subjects {
			_, has, _, err := read.Date(v.r, v.Layout, k, dict.ID(s), actor)
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
		if _, has, _, failed = read.Date(v.r, v.Layout, k, set, member); failed == nil && !has {
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

// chunkReader gathers the records of an actor and kind from a scan.
type chunkReader struct {
	kind    kinds.Kind
	actor   dict.ID
	coder   format.ChunkCoder
	reach   uint64          // of the head
	head    []format.Record // those that no leaf came for yet
	leaves  int             // so far
	last    format.Path     // of the last of them
	value   []byte          // of the head; keys of its records point into it
	leaf    []format.Record
	all     []uint64 // the subjects of the actor
	records uint64   // of the actor
	dated   []datedSubject
}

// eachActor reads all records, checks their form, counts them, and calls each with the
// ascending subjects of every actor and kind. It counts the records of accounts that are
// being erased, but does not call each for them.
func (v *checker) eachActor(each func(k kinds.Kind, actor dict.ID, subjects []uint64) error) error {
	b := &v.reader
	*b = chunkReader{}
	v.counts.Records = format.Counts{}.Clone().Records
	if err := v.scan([]byte{format.KeyRecord}, func(key, value []byte) error {
		k, actor, last, isLeaf, err := format.ParseChunkKey(key)
		if err != nil || v.kinds.Info(k) == nil || k.IsLabel() {
			v.broken("record key %x is malformed, or of an unknown kind", key)
			return nil //nolint:nilerr // it is reported
		}
		if b.kind != k || b.actor != actor {
			if err := v.endActor(each); err != nil {
				return err
			}
			*b = chunkReader{kind: k, actor: actor, coder: format.CoderOf(k, actor), value: b.value, leaf: b.leaf, all: b.all, dated: b.dated}
			v.named(dict.DID, actor, "actor")
			if v.summing && !v.recorded.Contains(uint64(actor)) && !v.damage.any() && !v.unreadable {
				v.broken("account %d has records, and its state says that it never had one", actor)
			}
		}
		if isLeaf {
			v.leaf(key, value, last)
		} else {
			v.head(key, value)
		}
		return nil
	}); err != nil {
		return err
	}
	return v.endActor(each)
}

// head reads and checks a head.
func (v *checker) head(key, value []byte) {
	b := &v.reader
	b.value = append(b.value[:0], value...)
	var ok bool
	if b.head, b.reach, ok = v.chunk(key, b.value, nil); !ok {
		b.reach = math.MaxUint64
	}
}

// leaf reads and checks a leaf.
func (v *checker) leaf(key, value []byte, last format.Path) {
	b := &v.reader
	if b.reach == 0 && !v.erasing[b.actor] {
		v.broken("chunk %x has no spilled head above it", key)
	}
	var ok bool
	var reach uint64
	if b.leaf, reach, ok = v.chunk(key, value, b.leaf[:0]); ok && (reach > 0 || len(b.leaf) == 0) {
		v.broken("leaf %x has a reach, or no records", key)
	}
	if n := len(b.leaf); n > 0 && b.reach > 0 && !format.Reaches(b.reach, b.leaf[n-1].Path) {
		v.broken("leaf %x has records above the reach of its head", key)
	}
	if n := len(b.leaf); n > 0 && (b.leaves > 0 && format.ComparePaths(b.leaf[0].Path, b.last) <= 0 || format.ComparePaths(b.leaf[n-1].Path, last) > 0) {
		v.broken("leaf %x has records that belong elsewhere", key)
	}
	n := 0
	for n < len(b.head) && format.ComparePaths(b.head[n].Path, last) <= 0 {
		n++
	}
	format.Merged(b.head[:n], b.leaf, v.record)
	b.head = b.head[n:]
	b.last, b.leaves = format.Path{TID: last.TID, Raw: bytes.Clone(last.Raw)}, b.leaves+1
}

// chunk reads and checks a chunk, and appends its records. ok is false if it is malformed.
func (v *checker) chunk(key, value []byte, dst []format.Record) (mine []format.Record, reach uint64, ok bool) {
	c := v.reader.coder
	mine, reach, err := c.Read(dst, value, 0)
	if err != nil {
		v.broken("chunk %x: %v", key, err)
		v.unreadable = true
		return nil, 0, false
	}
	if again := c.AppendStored(nil, reach, mine); string(again) != string(value) && string(c.Append(nil, reach, mine)) != string(value) {
		v.broken("chunk %x is %x; expected %x", key, value, again)
	}
	for i := range mine {
		r := &mine[i]
		if i > 0 && format.CompareEntries(&mine[i-1], r) >= 0 {
			v.broken("chunk %x does not ascend", key)
		}
		if rkey := r.Path.AppendRkey(nil); format.ComparePaths(format.ParsePath(rkey), r.Path) != 0 || r.Path.Raw != nil && !dict.ValidRkey(r.Path.Raw) {
			v.broken("chunk %x has the invalid record key %q", key, rkey)
		}
		if r.Flags == format.Removed && reach == 0 {
			v.broken("chunk %x keeps the removed %q with nothing below it", key, r.Path.AppendRkey(nil))
		}
	}
	return mine, reach, true
}

// record takes a live record.
func (v *checker) record(r *format.Record) (more bool) {
	b := &v.reader
	v.counts.Records[v.kinds.Info(b.kind).Name]++
	b.records++
	if r.Subject != dict.None {
		b.all = append(b.all, uint64(r.Subject))
		if v.summing && v.dates.isLarge(b.kind, uint64(r.Subject)) {
			b.dated = append(b.dated, datedSubject{uint64(r.Subject), format.DateOf(r.Path)})
		}
	}
	return true
}

func (v *checker) endActor(each func(k kinds.Kind, actor dict.ID, subjects []uint64) error) error {
	b := &v.reader
	if b.kind == 0 {
		return nil
	}
	format.Merged(b.head, nil, v.record)
	if v.summing && b.kind <= kinds.LastBuiltIn && b.records > 0 {
		v.add(v.counted, b.kind, uint64(b.actor), b.records)
	}
	slices.Sort(b.all)
	defer func() { b.all, b.dated = b.all[:0], b.dated[:0] }()
	if v.erasing[b.actor] {
		return nil
	}
	if v.summing {
		if err := v.noteRepeated(b.kind, b.actor, b.all); err != nil {
			return err
		}
	}
	b.all = slices.Compact(b.all)
	v.ofDates().datedRecords(b.kind, b.actor, b.dated)
	return each(b.kind, b.actor, b.all)
}

// noteRepeated looks up the members of an actor and kind that have several records: their sets must say so. Writers rely on that when they
// delete records. subjects ascend, and have a subject once for each record.
func (v *checker) noteRepeated(k kinds.Kind, actor dict.ID, subjects []uint64) error {
	for i := 1; i < len(subjects); i++ {
		s := subjects[i]
		if s != subjects[i-1] || i > 1 && s == subjects[i-2] {
			continue
		}
		date, found, _, err := read.Date(v.r, v.Layout, k, dict.ID(s), actor)
		switch {
		case err != nil:
			if failure := v.damage.failure(); failure != nil {
				return fmt.Errorf("checking the repeated members: %w", failure)
			}
			v.unreadable = true // eachSet reports what is malformed
		case found && date != format.Undated:
			v.broken("actor %d has several %s records of %d, and its date in the set, %d, says that it has one", actor, v.kinds.Info(k).Name, s, date)
		}
	}
	return nil
}
