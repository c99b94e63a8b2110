package write

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
)

// owner is an actor and a kind of records.
type owner struct {
	kind  kinds.Kind
	actor dict.ID
}

// heads is a history of the records of few owners, beside a map of them: the subjects of each, by record key; None of a record that names
// nothing.
type heads struct {
	t      *testing.T
	rng    *rand.Rand
	store  kv.Store
	merger *Merger
	owners []owner // ascending
	paths  []format.Path
	twin   map[owner]map[string]map[dict.ID]bool

	previous previous
	many     manySubjects
	records  records
	leaves   int // at most, so far
	direct   int // operands that went to leaves
}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newHeads draws few paths: TIDs before and after 2022, close together and far apart, other keys, and perhaps long ones.
func newHeads(t *testing.T, rng *rand.Rand, store kv.Store, merger *Merger) *heads {
	h := &heads{t: t, rng: rng, store: store, merger: merger, twin: map[owner]map[string]map[dict.ID]bool{}}
	for _, k := range []kinds.Kind{1, kinds.FirstMany} {
		for i := range 3 {
			o := owner{k, dict.ID(1<<20 + i)}
			h.owners, h.twin[o] = append(h.owners, o), map[string]map[dict.ID]bool{}
		}
	}
	for range 20 + rng.IntN(300) {
		switch rng.IntN(6) {
		case 0, 1:
			h.paths = append(h.paths, format.Path{TID: (1_640_995_200_000_000 - 50 + rng.Uint64N(100)) << format.ClockBits})
		case 2, 3:
			h.paths = append(h.paths, format.Path{TID: rng.Uint64() >> (1 + rng.IntN(30))})
		default:
			h.paths = append(h.paths, format.Path{Raw: fmt.Appendf(nil, "%c%d", 'a'+rng.IntN(26), rng.IntN(100))})
		}
	}
	if rng.IntN(3) == 0 {
		for i := range 150 {
			h.paths = append(h.paths, format.Path{Raw: append(bytes.Repeat([]byte("~"), 450+rng.IntN(50)), fmt.Sprintf("%04d", i)...)})
		}
	}
	return h
}

// draw draws changes, ascending, and applies them to a copy of the map.
func (h *heads) draw() (changes []change, after map[owner]map[string]map[dict.ID]bool) {
	rng := h.rng
	after = maps.Clone(h.twin)
	for _, o := range h.owners {
		n := rng.IntN(6)
		if rng.IntN(12) == 0 {
			n = rng.IntN(120)
		}
		drawn := map[string]format.Path{}
		for range n {
			p := h.paths[rng.IntN(len(h.paths))]
			drawn[string(p.AppendRkey(nil))] = p
		}
		after[o] = maps.Clone(after[o])
		for rkey, p := range drawn {
			c := change{kind: o.kind, actor: o.actor, path: p, subject: -1, delete: rng.IntN(3) == 0}
			subjects := map[dict.ID]bool{}
			for i := 0; i == 0 || o.kind.IsMany() && rng.IntN(3) > 0; i++ {
				if rng.IntN(8) > 0 || o.kind.IsMany() {
					subjects[dict.ID(500+rng.IntN(40))] = true
				} else {
					subjects[dict.None] = true
				}
			}
			switch {
			case o.kind.IsMany():
				put := c
				put.delete, c.delete = false, true
				changes = append(changes, c)
				if rng.IntN(3) == 0 {
					subjects = nil
				}
				for subject := range subjects {
					put.new = subject
					changes = append(changes, put)
				}
			case c.delete:
				changes, subjects = append(changes, c), nil
			default:
				for subject := range subjects {
					c.new = subject
				}
				c.fresh = h.twin[o][rkey] == nil && rng.IntN(2) == 0
				changes = append(changes, c)
			}
			if delete(after[o], rkey); subjects != nil {
				after[o][rkey] = subjects
			}
		}
	}
	slices.SortFunc(changes, func(x, y change) int { return cmp.Or(compareChanges(&x, &y), deletionFirst(x, y)) })
	return changes, after
}

// write writes random changes, and checks what was read before. Sometimes it ends before it is committed.
func (h *heads) write() {
	changes, after := h.draw()
	all := slices.Clone(changes)
	err := h.store.Update(h.t.Context(), func(tx kv.Txn) (err error) {
		all = append(all[:0], changes...)
		if err := h.previous.read(tx, all); err != nil {
			return err
		}
		h.found(all, after)
		if all, err = h.many.settle(tx, all, &searches{most: 1 << 30, meters: map[dict.ID]*meter{}}); err != nil {
			return err
		}
		for one := range sets.Runs(all, sameKindAndActor) {
			h.lost(tx, one, after)
		}
		if err := h.records.write(headsTxn{tx, h}, all, h.merger); err != nil || h.rng.IntN(20) > 0 {
			return err
		}
		return errBroken
	})
	if err == nil {
		h.twin = after
	} else if !errors.Is(err, errBroken) {
		h.t.Fatal(err)
	}
}

// found compares what the changed paths held with the map.
func (h *heads) found(changes []change, after map[owner]map[string]map[dict.ID]bool) {
	h.t.Helper()
	for i := range changes {
		c := &changes[i]
		o := owner{c.kind, c.actor}
		rkey := string(c.path.AppendRkey(nil))
		subjects := h.twin[o][rkey]
		if !c.kind.IsMany() && (c.existed != (subjects != nil) || subjects != nil && !subjects[c.old]) {
			h.t.Fatalf("%s of %v held %d (%v), want %v", rkey, o, c.old, c.existed, subjects)
		}
		if kept := slices.ContainsFunc(slices.Collect(maps.Values(after[o])), func(s map[dict.ID]bool) bool { return s[c.old] }); c.kept && !kept {
			h.t.Fatalf("%s of %v: %d is kept, of %v", rkey, o, c.old, after[o])
		}
	}
}

// lost compares the edges that no stored record is said to name after the write with the map, if all records of the owner were read.
func (h *heads) lost(tx kv.Txn, changes []change, after map[owner]map[string]map[dict.ID]bool) {
	o := owner{changes[0].kind, changes[0].actor}
	head, _, _ := tx.Get(format.AppendRecordsKey(nil, o.kind, o.actor))
	_, reach, err := format.CoderOf(o.kind, o.actor).Read(nil, head)
	must(h.t, err)
	want := map[dict.ID]bool{}
	for _, subjects := range h.twin[o] {
		maps.Copy(want, subjects)
	}
	delete(want, dict.None)
	for rkey, subjects := range h.twin[o] {
		maps.DeleteFunc(want, func(s dict.ID, _ bool) bool { return subjects[s] && after[o][rkey][s] })
	}
	got := map[dict.ID]bool{}
	for _, c := range changes {
		if c.lone {
			got[c.old] = true
		}
		if c.kept && want[c.old] || c.lone && !want[c.old] {
			h.t.Fatalf("%v keeps %d: %v, loses it: %v, want %v lost", o, c.old, c.kept, c.lone, want)
		}
	}
	if (reach == 0 || o.kind.IsMany()) && !maps.Equal(got, want) {
		h.t.Fatalf("%v loses %v, want %v", o, got, want)
	}
}

// spill spills some of the heads that are too large. Sometimes it ends before it is committed, and the others are forgotten.
func (h *heads) spill() {
	keys := h.merger.TakeLarge(h.rng.IntN(4), func(string) bool { return true })
	err := h.store.Update(h.t.Context(), func(tx kv.Txn) error {
		for _, key := range keys {
			v, _, err := tx.Get([]byte(key))
			if err != nil {
				return err
			}
			large := h.large([]byte(key), v)
			if n, err := h.merger.SpillOne(tx, format.Layout{}, []byte(key)); err != nil || (n == 1) != large {
				h.t.Fatalf("%x: %d were spilled, it is too large: %v; %v", key, n, large, err)
			}
		}
		if h.rng.IntN(10) == 0 {
			return errBroken
		}
		return nil
	})
	if errors.Is(err, errBroken) {
		h.merger.TakeLarge(maxLarge, func(string) bool { return true })
	} else if err != nil {
		h.t.Fatal(err)
	}
	for _, key := range keys {
		if err != nil {
			break
		}
		must(h.t, h.store.View(h.t.Context(), func(r kv.Reader) error {
			v, _, err := r.Get([]byte(key))
			if h.large([]byte(key), v) {
				h.t.Fatalf("%x is too large after it was spilled", key)
			}
			return err
		}))
	}
}

// large reports whether a head is too large.
func (h *heads) large(key, v []byte) bool {
	c, err := format.CoderOfKey(key)
	must(h.t, err)
	records, reach, err := c.Read(nil, v)
	must(h.t, err)
	return len(records) > h.merger.limits.Chunk || len(c.Append(nil, reach, records)) > maxChunkBytes
}

// entries returns the entries of an owner by the map, in order.
func (h *heads) entries(o owner) (all []format.Record) {
	for rkey, subjects := range h.twin[o] {
		for subject := range subjects {
			r := format.Record{Path: format.ParsePath([]byte(rkey)), Subject: subject, IsMany: o.kind.IsMany()}
			if subject == dict.None {
				r.Flags = format.NoSubject
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
	return all
}

func sameEntry(x, y format.Record) bool {
	return format.CompareEntries(&x, &y) == 0 && x.Subject == y.Subject && x.Flags == y.Flags
}

// collect returns the records that read calls its argument with, until it has so many.
func collect(t *testing.T, most int, read func(each func(*format.Record) bool) error) (all []format.Record) {
	t.Helper()
	must(t, read(func(r *format.Record) bool {
		c := *r
		c.Path.Raw = bytes.Clone(r.Path.Raw)
		all = append(all, c)
		return len(all) < most
	}))
	return all
}

// window draws a window whose ends are close to paths of records.
func (h *heads) window() read.Window {
	if h.rng.IntN(4) == 0 {
		return read.Window{}
	}
	end := func() uint64 {
		return min(h.paths[h.rng.IntN(len(h.paths))].TID+h.rng.Uint64N(3), format.EndOfTime)
	}
	a, b := end(), end()
	return read.Window{From: min(a, b), To: max(a, b) + 1}
}

// reads compares what all readers return with the map.
func (h *heads) reads(r kv.Reader) {
	const all = 1 << 30
	t, rng := h.t, h.rng
	equal := func(what string, o owner, got, want []format.Record) {
		t.Helper()
		if !slices.EqualFunc(got, want, sameEntry) {
			t.Fatalf("%s of %v:\n%v, want\n%v", what, o, got, want)
		}
	}
	for _, o := range h.owners {
		entries := h.entries(o)
		most := 1 + rng.IntN(len(entries)+2)
		equal("records", o, collect(t, all, func(each func(*format.Record) bool) error { return read.Records(r, o.kind, o.actor, each) }), entries)
		equal("first records", o, collect(t, most, func(each func(*format.Record) bool) error { return read.Records(r, o.kind, o.actor, each) }), entries[:min(most, len(entries))])
		w, modulus := h.window(), dict.ID(1+rng.IntN(6))
		in := slices.DeleteFunc(slices.Clone(entries), func(e format.Record) bool { return !w.Has(e.Path) })
		wanted := func(s dict.ID) bool { return s%modulus == 0 }
		some := slices.DeleteFunc(slices.Clone(in), func(e format.Record) bool { return e.Flags != 0 || !wanted(e.Subject) })
		head, _, _ := r.Get(format.AppendRecordsKey(nil, o.kind, o.actor))
		_, reach, err := format.CoderOf(o.kind, o.actor).Read(nil, head)
		must(t, err)
		counted := read.Charged(r, func(_ bool, key, _ []byte) error {
			if key == nil && !format.Reaches(reach, format.Path{TID: w.From}) {
				t.Errorf("%v: the leaves end before %v, and are read", o, w)
			}
			return nil
		})
		naming := func(wanted func(dict.ID) bool) []format.Record {
			return collect(t, all, func(each func(*format.Record) bool) error {
				return read.RecordsNaming(counted, o.kind, o.actor, w, wanted, each)
			})
		}
		equal(fmt.Sprintf("records in %v", w), o, naming(nil), in)
		equal(fmt.Sprintf("records in %v that name some", w), o, naming(wanted), some)
		var subjects []uint64
		for _, e := range in {
			if e.Flags == 0 {
				subjects = append(subjects, uint64(e.Subject))
			}
		}
		got, err := read.AppendSubjects(r, o.kind, o.actor, w, nil)
		slices.Sort(got)
		if slices.Sort(subjects); err != nil || !slices.Equal(got, subjects) {
			t.Fatalf("subjects of %v in %v: %v, want %v; %v", o, w, got, subjects, err)
		}
		first := h.paths[rng.IntN(len(h.paths))].TID
		last := h.paths[rng.IntN(len(h.paths))].TID
		within := collect(t, all, func(each func(*format.Record) bool) error {
			return read.RecordsWithin(r, o.kind, o.actor, first, last, each)
		})
		slices.SortStableFunc(within, func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
		within = slices.CompactFunc(within, sameEntry)
		if slices.ContainsFunc(within, func(e format.Record) bool {
			i, _ := slices.BinarySearchFunc(entries, e, func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
			return i == len(entries) || !sameEntry(entries[i], e)
		}) {
			t.Fatalf("records of %v within [%d, %d]: %v, of %v", o, first, last, within, entries)
		}
		inside := func(e format.Record) bool { return e.Path.Raw != nil || e.Path.TID >= first && e.Path.TID <= last }
		equal("records within", o, slices.DeleteFunc(within, func(e format.Record) bool { return !inside(e) }), slices.DeleteFunc(slices.Clone(entries), func(e format.Record) bool { return !inside(e) }))
	}
	for _, k := range []kinds.Kind{1, kinds.FirstMany} {
		from, to := dict.ID(1<<20+rng.IntN(3)), dict.ID(1<<20+rng.IntN(4))
		got := map[owner][]format.Record{}
		must(t, read.RecordsBetween(r, k, from, to, func(actor dict.ID, rec *format.Record) bool {
			c := *rec
			c.Path.Raw = bytes.Clone(rec.Path.Raw)
			got[owner{k, actor}] = append(got[owner{k, actor}], c)
			return true
		}))
		for _, o := range h.owners {
			if o.kind == k && o.actor >= from && o.actor < to {
				equal("records between", o, got[o], h.entries(o))
				delete(got, o)
			}
		}
		if len(got) > 0 {
			t.Fatalf("records between %d and %d are of %v", from, to, got)
		}
	}
}

// chunks checks the form of all chunks, and that together they have the live records of the map, each once.
func (h *heads) chunks(r kv.Reader) {
	t := h.t
	live := map[owner][]format.Record{}
	var at owner
	var before format.Path
	leaves, above := 0, uint64(0)
	must(t, kv.ScanPrefix(r, []byte{format.KeyRecord}, func(key, v []byte) error {
		k, actor, last, isLeaf, err := format.ParseChunkKey(key)
		if err != nil {
			return err
		}
		c := format.CoderOf(k, actor)
		records, reach, err := c.Read(nil, bytes.Clone(v))
		if err != nil {
			return err
		}
		own, err := read.LiveRecords(r, key, v)
		if err != nil {
			return err
		}
		o := owner{k, actor}
		live[o] = append(live[o], own...)
		if !isLeaf {
			at, before, leaves, above = o, format.Path{}, 0, reach
			return nil
		}
		most, room := h.merger.limits.Chunk, maxChunkBytes
		if k.IsMany() { // all subjects of a record belong to one leaf
			most, room = most+kinds.MaxSubjects, room+24*kinds.MaxSubjects
		}
		switch n := len(records); {
		case n == 0 || reach != 0 || slices.ContainsFunc(records, func(r format.Record) bool { return r.Flags == format.Removed }):
			t.Fatalf("leaf %x is of reach %d, with %v", key, reach, records)
		case o != at || !format.Reaches(above, records[n-1].Path):
			t.Fatalf("leaf %x has a head of reach %d", key, above)
		case n > most || len(c.Append(nil, 0, records)) > room:
			t.Fatalf("leaf %x has %d records in %d bytes", key, n, len(v))
		case leaves > 0 && format.ComparePaths(records[0].Path, before) <= 0 || format.ComparePaths(records[n-1].Path, last) > 0:
			t.Fatalf("leaf %x after %v has records that belong elsewhere: %v", key, before, records)
		case !bytes.Equal(v, c.AppendStored(nil, 0, records)):
			t.Fatalf("leaf %x is %x", key, v)
		}
		before = format.Path{TID: last.TID, Raw: bytes.Clone(last.Raw)}
		leaves++
		h.leaves = max(h.leaves, leaves)
		return nil
	}))
	for _, o := range h.owners {
		slices.SortFunc(live[o], func(x, y format.Record) int { return format.CompareEntries(&x, &y) })
		if want := h.entries(o); !slices.EqualFunc(live[o], want, sameEntry) {
			t.Fatalf("the chunks of %v have\n%v, want\n%v", o, live[o], want)
		}
	}
}

// headsTxn counts the heads that are set, and checks that none is too large then.
type headsTxn struct {
	kv.Txn

	of *heads
}

func (tx headsTxn) Set(key, value []byte) {
	if _, _, _, isLeaf, err := format.ParseChunkKey(key); err == nil && !isLeaf {
		if tx.of.direct++; tx.of.large(key, value) {
			tx.of.t.Errorf("the head %x is set to %d bytes", key, len(value))
		}
	}
	tx.Txn.Set(key, value)
}

// TestHeadsAndLeaves writes random histories of the records of few actors, with small limits, and compares all that can be read with a map
// after each write. Operands may be large, spills come at random times, and processes end between any two writes.
func TestHeadsAndLeaves(t *testing.T) {
	leaves, direct := 0, 0
	for seed := range uint64(18) {
		rng := rand.New(rand.NewPCG(seed, 50))
		limits := Limits{Row: 8, Chunk: []int{2, 4, 9, 30, 400}[rng.IntN(5)]}
		merger := NewMerger(limits)
		store, dir := kv.Store(memkv.Open(memkv.Options{Merger: merger})), ""
		openPebble := func() (*pebblekv.Store, error) {
			return pebblekv.Open(pebblekv.Options{Dir: dir, Create: true, Memory: 8 << 20, Merger: merger})
		}
		compact := func(context.Context) error { return nil }
		if seed%6 == 0 {
			dir = t.TempDir()
			p, err := openPebble()
			must(t, err)
			store, compact = p, p.Compact
		}
		h := newHeads(t, rng, store, merger)
		if seed%4 == 3 { // leaves that end before some of the windows
			h.paths = slices.DeleteFunc(h.paths, func(p format.Path) bool { return p.Raw != nil })
		}
		for range 50 {
			h.write()
			if rng.IntN(2) == 0 {
				h.spill()
			}
			if rng.IntN(8) == 0 {
				must(t, compact(t.Context()))
			}
			if rng.IntN(20) == 0 { // a new process
				merger = NewMerger(limits)
				if m, ok := h.store.(*memkv.Store); ok {
					h.store = m.Reopen(memkv.Options{Merger: merger})
				} else {
					err := h.store.Close()
					p, err1 := openPebble()
					must(t, cmp.Or(err, err1))
					h.store, compact = p, p.Compact
				}
				h.merger = merger
			}
			must(t, h.store.View(t.Context(), func(r kv.Reader) error {
				h.chunks(r)
				h.reads(r)
				return nil
			}))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		leaves, direct = max(leaves, h.leaves), direct+h.direct
		must(t, h.store.Close())
	}
	if leaves < 30 || direct < 8 { // how many depends on when the engine folds
		t.Errorf("at most %d leaves below a head, and %d operands went to leaves: too few to prove anything", leaves, direct)
	}
}

// TestSpillIsBounded: a spill of a head whose records belong to more than spillLeaves leaves writes so many of them, and leaves the others'
// records in the head, for the next.
func TestSpillIsBounded(t *testing.T) {
	const leaves, chunk = 2*spillLeaves + 88, 4
	merger := NewMerger(Limits{Row: 8, Chunk: chunk})
	h := newHeads(t, rand.New(rand.NewPCG(1, 1)), memkv.Open(memkv.Options{Merger: merger}), merger)
	o := h.owners[0]
	c, head := format.CoderOf(o.kind, o.actor), format.AppendRecordsKey(nil, o.kind, o.actor)
	var records []format.Record
	merge := func(subject dict.ID) {
		t.Helper()
		must(t, h.store.Update(t.Context(), func(tx kv.Txn) error { return merger.mergeRecords(tx, c, head, c.Append(nil, 0, records), records) }))
		for _, r := range records {
			h.twin[o][string(r.Path.AppendRkey(nil))] = map[dict.ID]bool{subject: true}
		}
	}
	check := func() {
		t.Helper()
		must(t, h.store.View(t.Context(), func(r kv.Reader) error {
			h.chunks(r)
			h.reads(r)
			return nil
		}))
	}
	for i := range uint64(leaves * chunk) {
		records = append(records, format.Record{Path: format.Path{TID: i << 40}, Subject: 5})
	}
	merge(5)
	check()
	written := 0
	spill := func() {
		t.Helper()
		for _, key := range merger.TakeLarge(10, func(string) bool { return true }) {
			must(t, h.store.Update(t.Context(), func(tx kv.Txn) error {
				_, err := merger.SpillOne(leavesTxn{tx, &written}, format.Layout{}, []byte(key))
				return err
			}))
		}
		check()
	}
	for written < leaves*chunk/chunk { // all are spilled into leaves
		before := written
		if spill(); written == before {
			break
		}
	}
	records = slices.DeleteFunc(records, func(r format.Record) bool { return r.Path.TID>>40%chunk != 0 })
	for i := range records {
		records[i].Subject = 6
	}
	merge(6)
	for _, want := range []int{spillLeaves, spillLeaves, leaves - 2*spillLeaves, 0} {
		written = 0
		merger.MarkLarge(head)
		if spill(); written != want {
			t.Errorf("a spill writes %d leaves, want %d of %d", written, want, h.leaves)
		}
	}
}

// TestLargeOperand: what a large operand leaves in the head for later is not too large, however long the keys are.
func TestLargeOperand(t *testing.T) {
	merger := NewMerger(Limits{})
	h := newHeads(t, rand.New(rand.NewPCG(1, 1)), memkv.Open(memkv.Options{Merger: merger}), merger)
	o := h.owners[0]
	c, head := format.CoderOf(o.kind, o.actor), format.AppendRecordsKey(nil, o.kind, o.actor)
	for _, n := range []int{40, 90} {
		records := []format.Record{{Path: format.Path{TID: 7}, Subject: 5}}
		for i := range n {
			records = append(records, format.Record{Path: format.Path{Raw: fmt.Appendf(nil, "%d%s%03d", n, bytes.Repeat([]byte("k"), 500), i)}, Subject: 5})
		}
		must(t, h.store.Update(t.Context(), func(tx kv.Txn) error {
			return merger.mergeRecords(headsTxn{tx, h}, c, head, c.Append(nil, 0, records), records)
		}))
		for _, r := range records {
			h.twin[o][string(r.Path.AppendRkey(nil))] = map[dict.ID]bool{5: true}
		}
		must(t, h.store.View(t.Context(), func(r kv.Reader) error {
			h.chunks(r)
			h.reads(r)
			return nil
		}))
	}
	if h.direct != 2 || h.leaves < 2 {
		t.Errorf("%d operands went to %d leaves", h.direct, h.leaves)
	}
}

// leavesTxn counts the leaves that are set.
type leavesTxn struct {
	kv.Txn

	sets *int
}

func (tx leavesTxn) Set(key, value []byte) {
	if _, _, _, isLeaf, err := format.ParseChunkKey(key); err == nil && isLeaf {
		*tx.sets++
	}
	tx.Txn.Set(key, value)
}
