package check

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// edges reads the records and the sets, and compares them, and what else has two sides.
func (v *checker) edges() error {
	if err := v.ofDates().readDates(); err != nil {
		return err
	}
	if err := v.sides((*dictionary).readIDs); err != nil {
		return err
	}
	for _, ns := range dict.Namespaces {
		v.counts.Strings[ns.String()] = v.dictionary.ids[ns]
	}
	return v.compare()
}

// sides reads both sides of the comparisons, but the states of accounts and, unless strings does, the strings.
func (v *checker) sides(strings func(*dictionary) error) error {
	counted := v.counts.Records
	if err := v.parallel(
		func(w *checker) error {
			err := w.eachActor(func(k kinds.Kind, actor dict.ID, subjects []uint64) {
				for _, s := range subjects {
					if k.IsSelf() { // there is no set to compare it with
						w.named(dict.URI, dict.ID(s), "record")
						continue
					}
					w.inSets.addNumbers(0, uint64(k), uint64(actor), s)
				}
			})
			counted = w.counts.Records
			return err
		},
		func(w *checker) error {
			return w.eachSet(func(k kinds.Kind, subject dict.ID, members []uint64) {
				for _, m := range members {
					if k.IsLabel() || !w.erasing[dict.ID(m)] {
						w.inSets.addNumbers(1, uint64(k), m, uint64(subject))
					}
				}
			})
		},
		func(w *checker) error {
			w.dictionary.r = w.r
			return strings(w.dictionary)
		},
		func(w *checker) error { return w.ofDates().sumDates() },
	); err != nil {
		return err
	}
	v.counts.Records = counted
	return v.ofLabels().labels(func(k kinds.Kind, member, set dict.ID) {
		v.inSets.addNumbers(0, uint64(k), uint64(member), uint64(set))
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
func (v *checker) eachActor(each func(k kinds.Kind, actor dict.ID, subjects []uint64)) error {
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
			if !v.recorded.Contains(uint64(actor)) && !v.damage.any() && !v.unreadable {
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
	mine, reach, err := c.Read(dst, value)
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
		if v.dates.isLarge(b.kind, uint64(r.Subject)) {
			b.dated = append(b.dated, datedSubject{uint64(r.Subject), format.DateOf(r.Path)})
		}
	}
	return true
}

func (v *checker) endActor(each func(k kinds.Kind, actor dict.ID, subjects []uint64)) error {
	b := &v.reader
	if b.kind == 0 {
		return nil
	}
	format.Merged(b.head, nil, v.record)
	if b.kind <= kinds.LastBuiltIn && b.records > 0 {
		v.inStates.addNumbers(1, uint64(b.kind), uint64(b.actor), b.records)
	}
	slices.Sort(b.all)
	defer func() { b.all, b.dated = b.all[:0], b.dated[:0] }()
	if v.erasing[b.actor] {
		return nil
	}
	if err := v.noteRepeated(b.kind, b.actor, b.all); err != nil {
		return err
	}
	b.all = slices.Compact(b.all)
	v.ofDates().datedRecords(b.kind, b.actor, b.dated)
	each(b.kind, b.actor, b.all)
	return nil
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
