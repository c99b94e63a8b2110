package write

import (
	"bytes"
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
	"skein.blue/internal/sim/memkv"
)

var errBroken = errors.New("the engine is broken")

// brokenTxn cannot read.
type brokenTxn struct{ kv.Txn }

func (brokenTxn) Get([]byte) ([]byte, bool, error) { return nil, false, errBroken }

// largeRows counts the rows of a value that are too large.
func largeRows(key, v []byte, most int) (n int, err error) {
	each := func(subject dict.ID, row []byte) error {
		_, removed, members, _, err := format.MergeRows(subject, row)
		if len(removed)+len(members) > most {
			n++
		}
		return err
	}
	if key[0] != format.KeyRows {
		subject, _ := dict.ReadID(key[2:])
		err = each(subject, v)
		return n, err
	}
	_, first, err := format.ParseRowGroupKey(key)
	if err == nil {
		err = format.EachRow(first, v, each)
	}
	return n, err
}

// A setName identifies a set.
type setName struct {
	kind    kinds.Kind
	subject dict.ID
}

// A twinMember is what a test knows of a member of a set.
type twinMember struct {
	records []uint32 // the dates of its records
	again   bool     // it was added while it was a member already, or with several records
}

// A setWorld is a store of sets, and a map that has the same members.
type setWorld struct {
	t      *testing.T
	rng    *rand.Rand
	layout format.Layout
	merger *Merger
	store  kv.Store
	writer rows
	lone   loneEdges
	sets   []setName // ascending
	twin   map[setName]map[dict.ID]twinMember

	spills, failures, exact, ones, undated, below, returned int // how often the test met each
}

// id returns an id of few shards.
func (w *setWorld) id() dict.ID {
	return w.layout.Settings.Start(uint32(w.rng.IntN(10)), uint64(w.rng.IntN(2))) + dict.ID(w.rng.IntN(4))
}

// change makes random changes of a member's records, and returns what they change of the set.
func (w *setWorld) change(s setName, id dict.ID) (c []SetChange) {
	now, was := w.twin[s][id], len(w.twin[s][id].records) > 0
	now.records = slices.Clone(now.records)
	add := SetChange{Kind: s.kind, Subject: s.subject, Member: id}
	for range 1 + w.rng.IntN(2)*w.rng.IntN(3) { // mostly one
		date := uint32(w.rng.IntN(9))
		if w.rng.IntN(6) == 0 {
			date = format.OneRecord // its key is not a TID
		}
		if s.kind.IsLabel() && w.rng.IntN(6) == 0 {
			date = format.Undated // several labelers
		}
		switch {
		case w.rng.IntN(5) < 2 && len(now.records) > 0:
			now.records = slices.Delete(now.records, 0, 1)
			if w.rng.IntN(4) == 0 {
				now.records = nil
			}
		case len(c) == 0:
			add.Date, now.records = date, append(now.records, date)
			c = append(c, add)
		default:
			now.records = append(now.records, date)
			c[0].Date = format.Undated
		}
	}
	switch {
	case len(now.records) == 0 && was:
		c = append(c[:0], SetChange{Kind: s.kind, Remove: true, Subject: s.subject, Member: id})
		now.again = false
	case len(now.records) == 0:
		c = nil
	case len(c) > 0:
		now.again = was || c[0].Date == format.Undated
	}
	w.twin[s][id] = now
	return c
}

// write changes random sets in one write, which may fail.
func (w *setWorld) write() {
	var changes []SetChange
	before := map[setName]map[dict.ID]twinMember{}
	large := false
	for _, s := range w.sets {
		before[s] = maps.Clone(w.twin[s])
		if w.rng.IntN(4) > 0 {
			continue
		}
		n := w.rng.IntN(4)
		if w.rng.IntN(12) == 0 {
			n = 40
		}
		ids := map[dict.ID]bool{}
		for range n {
			ids[w.id()] = true
		}
		added := map[string]int{} // by the key of the row
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			c := w.change(s, id)
			if changes = append(changes, c...); len(c) > 0 && !c[0].Remove {
				added[string(w.layout.AppendMemberKey(nil, s.kind, s.subject, id))]++
			}
		}
		for key, n := range added {
			large = large || n > w.merger.limits.row([]byte(key))
		}
	}
	slices.SortFunc(changes, compareSetChanges)
	breaks := large && w.rng.IntN(3) == 0
	err := w.store.Update(w.t.Context(), func(tx kv.Txn) error {
		if breaks {
			tx = brokenTxn{tx}
		}
		return w.writer.write(tx, changes, w.layout, w.merger)
	})
	if breaks != errors.Is(err, errBroken) || err != nil && !breaks {
		w.t.Fatal(err)
	}
	if breaks {
		w.failures++
		w.twin = before
	}
}

// spill spills some of the large rows.
func (w *setWorld) spill() {
	must(w.t, w.store.Update(w.t.Context(), func(tx kv.Txn) error {
		for _, key := range w.merger.TakeLarge(w.rng.IntN(4), func(string) bool { return true }) {
			v, _, err := tx.Get([]byte(key))
			large, lerr := largeRows([]byte(key), v, w.merger.limits.row([]byte(key)))
			n, serr := w.merger.SpillOne(tx, w.layout, []byte(key))
			if err := errors.Join(err, lerr, serr); err != nil || n != large {
				return fmt.Errorf("%d rows of %x were spilled, %d are too large: %w", n, key, large, err)
			}
			w.spills += n
		}
		return nil
	}))
}

// check compares a set with the twin.
func (w *setWorld) check(r kv.Reader, s setName) error {
	l := w.layout
	var want, all []uint64
	dates := map[uint64]uint32{}
	for range 20 {
		all = append(all, uint64(w.id()))
	}
	for id := range w.twin[s] {
		all = append(all, uint64(id))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, id := range all {
		m := w.twin[s][dict.ID(id)]
		date, found, _, err := read.Date(r, l, s.kind, s.subject, dict.ID(id))
		if err != nil {
			return err
		}
		one := len(m.records) == 1
		switch {
		case found != (len(m.records) > 0):
			return fmt.Errorf("member %d is found: %t; its records have %v", id, found, m.records)
		case !found:
			continue
		case (date == format.Undated) != m.again,
			date == format.OneRecord && !one,
			date < format.OneRecord && (!one || m.records[0] != date):
			return fmt.Errorf("member %d has date %d; its records have %v", id, date, m.records)
		case date == format.Undated:
			w.undated++
		case date == format.OneRecord:
			w.ones++
		default:
			w.exact++
		}
		want = append(want, id)
		dates[id] = date
	}
	if got, err := read.Bitmap(r, l, s.kind, s.subject); err != nil || !slices.Equal(got.ToArray(), want) {
		return fmt.Errorf("the members are %v, want %v: %w", got, want, err)
	}
	t, err := read.OpenSet(r, l, s.kind, s.subject)
	if err != nil {
		return err
	}
	wanted := read.DateRange{First: uint32(w.rng.IntN(6)), From: uint32(w.rng.IntN(2) * w.rng.IntN(12))}
	wanted.Last = wanted.First + uint32(w.rng.IntN(4))
	n, err := read.Dates(r, l, s.kind, s.subject, &wanted, func(id uint64, date uint32) error {
		d, ok := dates[id]
		if d == format.OneRecord || t.Generation == 0 {
			d = format.Undated
		}
		if delete(dates, id); !ok || date != d {
			return fmt.Errorf("member %d has the date %d in %+v, want %d", id, date, wanted, d)
		}
		return nil
	})
	if err != nil || n != uint64(len(want)) {
		return fmt.Errorf("%d members, want %d: %w", n, len(want), err)
	}
	for id, d := range dates { // which were not wanted
		if d >= format.OneRecord || t.Generation == 0 || d >= wanted.First && d <= wanted.Last || wanted.From > 0 && d >= wanted.From {
			return fmt.Errorf("member %d, of date %d, is not in %+v", id, d, wanted)
		}
	}
	leaves, err := t.Leaves(r)
	if err != nil {
		return err
	}
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	some := all[:w.rng.IntN(len(all)+1)]
	slices.Sort(some)
	got, err := t.LeafMembers(r, l, some)
	if err != nil {
		return err
	}
	w.below += len(got)
	for _, id := range t.Removed {
		if _, member := slices.BinarySearch(t.Members, id); member && leaves.Contains(id) {
			w.returned++
		}
	}
	below := slices.DeleteFunc(slices.Clone(some), func(id uint64) bool { return !leaves.Contains(id) })
	slices.Sort(below)
	if slices.Sort(got); !slices.Equal(got, below) {
		return fmt.Errorf("%v of %v are in leaves, want %v", got, some, below)
	}
	return w.leaves(r, s)
}

// leaves checks the leaves of a set.
func (w *setWorld) leaves(r kv.Reader, s setName) error {
	return kv.ScanPrefix(r, format.Leaves(format.AppendRowKey(nil, s.kind, s.subject)), func(key, v []byte) error {
		_, _, part, last, isLeaf, err := w.layout.ParseSetKey(key)
		if err != nil {
			return err
		}
		generation, removed, members, _, err := format.MergeRows(s.subject, v)
		n := len(members)
		if err != nil || !isLeaf || generation > 0 || len(removed) > 0 || n == 0 || n > (w.merger.limits.Row+1)/2 || members[n-1] > uint64(last) {
			return fmt.Errorf("leaf %x has generation %d, %v and removed %v: %w", key, generation, members, removed, err)
		}
		for _, m := range members {
			if w.layout.Settings.PartitionOfID(dict.ID(m)) != part {
				return fmt.Errorf("leaf %x has %d", key, m)
			}
		}
		return nil
	})
}

// loneEdges: what a delete takes for the edges' only records are.
func (w *setWorld) loneEdges() {
	var asked []edge
	for _, s := range w.sets {
		for _, id := range slices.Sorted(maps.Keys(w.twin[s])) {
			if len(w.twin[s][id].records) > 0 && w.rng.IntN(3) == 0 {
				asked = append(asked, edge{kind: s.kind, actor: id, subject: s.subject})
			}
		}
	}
	slices.SortFunc(asked, compareEdges)
	must(w.t, w.store.Update(w.t.Context(), func(tx kv.Txn) error {
		lone, others, err := w.lone.read(tx, w.layout, asked)
		for i, list := range [][]edge{lone, others} {
			for _, g := range list {
				if m := w.twin[setName{g.kind, g.subject}][g.actor]; m.again != (i == 1) {
					return fmt.Errorf("edge %+v may have other records: %t; %+v", g, i == 1, m)
				}
			}
		}
		if len(lone)+len(others) != len(asked) {
			return fmt.Errorf("%d edges, of %d", len(lone)+len(others), len(asked))
		}
		return err
	}))
}

// TestSets writes random changes of sets, and compares each set with a map: its members, and what their dates say of their records.
// The subjects are neighbours; the members are of several shards. Some sets gain more members in one write than a row may have; some of
// these writes fail. The rows are spilled some time later. The store is in memory, or in Pebble, which folds later and in parts.
func TestSets(t *testing.T) {
	var all setWorld
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 0))
		limits := Limits{Row: 3 + rng.IntN(6), Chunk: 8}
		if seed%2 == 1 && seed%8 != 5 { // as many in each partition; else one
			limits.Row *= dict.MaxPartitions
		}
		w := &setWorld{t: t, rng: rng, merger: NewMerger(limits), twin: map[setName]map[dict.ID]twinMember{}}
		w.layout.Settings = dict.Settings{ShardBits: 4, LeaseSize: 256, Partitions: []uint8{1, 8}[seed%2], Group: []uint16{1, 16, 256}[seed%3]}
		w.store = memkv.Open(memkv.Options{Merger: w.merger})
		compact := func(context.Context) error { return nil }
		if seed%4 > 1 {
			p, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Merger: w.merger, Memory: 16 << 20})
			must(t, err)
			w.store, compact = p, p.Compact
		}
		for _, k := range []kinds.Kind{1, kinds.Like, kinds.Repost, kinds.LabeledAccount} {
			for range 5 {
				w.sets = append(w.sets, setName{k, dict.ID(1<<32 + rng.IntN(48))})
			}
		}
		slices.SortFunc(w.sets, func(x, y setName) int {
			return compareSetChanges(SetChange{Kind: x.kind, Subject: x.subject}, SetChange{Kind: y.kind, Subject: y.subject})
		})
		w.sets = slices.Compact(w.sets)
		for _, s := range w.sets {
			w.twin[s] = map[dict.ID]twinMember{}
		}
		for range 40 {
			w.write()
			w.spill()
			if rng.IntN(8) == 0 {
				must(t, compact(t.Context()))
			}
			must(t, w.store.View(t.Context(), func(r kv.Reader) error {
				for _, s := range w.sets {
					if err := w.check(r, s); err != nil {
						t.Fatalf("seed %d, %s: set %d of %d: %v", seed, w.layout.Settings, s.kind, s.subject, err)
					}
				}
				return nil
			}))
			w.loneEdges()
		}
		must(t, w.store.Close())
		all.spills, all.failures, all.below = all.spills+w.spills, all.failures+w.failures, all.below+w.below
		all.returned += w.returned
		all.exact, all.ones, all.undated = all.exact+w.exact, all.ones+w.ones, all.undated+w.undated
	}
	if all.spills < 100 || all.failures < 25 || min(all.exact, all.ones, all.undated, all.below) < 5000 || all.returned < 15 {
		t.Errorf("too few to prove anything: %d spills, %d failed writes; %d exact dates, %d members of one record, %d undated, %d in leaves, %d that returned above them",
			all.spills, all.failures, all.exact, all.ones, all.undated, all.below, all.returned)
	}
}

// leafTxn counts the leaves that are read, written and deleted.
type leafTxn struct {
	kv.Txn

	leaves               []byte // the prefix of their keys
	scans, read, written int
}

func (tx *leafTxn) Set(k, v []byte) {
	if bytes.HasPrefix(k, tx.leaves) {
		tx.written++
	}
	tx.Txn.Set(k, v)
}

func (tx *leafTxn) Delete(k []byte) {
	if bytes.HasPrefix(k, tx.leaves) {
		tx.written++
	}
	tx.Txn.Delete(k)
}

func (tx *leafTxn) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	tx.scans++
	return tx.Txn.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		tx.read++
		return each(k, v)
	})
}

// A spill whose changes belong to many leaves rewrites some of them. The other changes stay in the row, and are of the next spill. It
// writes no leaf to which no change belongs, and reads few.
func TestSpillOfManyLeaves(t *testing.T) {
	const kind, subject, members = kinds.Kind(1), dict.ID(9), 4 * spillLeaves
	merger := NewMerger(Limits{Row: 4, Chunk: 8})
	store := memkv.Open(memkv.Options{Merger: merger})
	layout := format.Layout{Settings: dict.DefaultSettings}
	key := layout.AppendMemberKey(nil, kind, subject, 1)
	want := map[uint64]bool{}
	write := func(id func(i int) dict.ID, n int, remove bool) (tx *leafTxn) {
		must(t, store.Update(t.Context(), func(inner kv.Txn) error {
			tx = &leafTxn{Txn: inner, leaves: format.Leaves(key)}
			var changes []SetChange
			for i := range n {
				changes = append(changes, SetChange{Kind: kind, Remove: remove, Date: 5, Subject: subject, Member: id(i)})
				if want[uint64(id(i))] = true; remove {
					delete(want, uint64(id(i)))
				}
			}
			return new(rows).write(tx, changes, layout, merger)
		}))
		return tx
	}
	spill := func() (tx *leafTxn, left int) {
		must(t, store.Update(t.Context(), func(inner kv.Txn) error {
			tx = &leafTxn{Txn: inner, leaves: format.Leaves(key)}
			n, err := merger.SpillOne(tx, layout, key)
			if n != 1 {
				return fmt.Errorf("%d spills: %w", n, err)
			}
			return err
		}))
		must(t, store.View(t.Context(), func(r kv.Reader) error {
			s, err := read.OpenSet(r, layout, kind, subject)
			left = len(s.Members) + len(s.Removed)
			return err
		}))
		return tx, left
	}
	verify := func() {
		t.Helper()
		must(t, store.View(t.Context(), func(r kv.Reader) error {
			got, err := read.Bitmap(r, layout, kind, subject)
			if err != nil || got.GetCardinality() != uint64(len(want)) {
				return fmt.Errorf("%d members, want %d: %w", got.GetCardinality(), len(want), err)
			}
			for id := range want {
				if !got.Contains(id) {
					return fmt.Errorf("%d is missing", id)
				}
			}
			return nil
		}))
	}
	if tx := write(func(i int) dict.ID { return dict.ID(1000 + 10*i) }, members, false); tx.written != members/2 || tx.read > 0 {
		t.Fatalf("a new set reads %d leaves and writes %d", tx.read, tx.written)
	}
	verify()
	if tx := write(func(i int) dict.ID { return dict.ID(1000 + 10*i) }, members, true); tx.written+tx.read > 0 {
		t.Errorf("a write reads %d leaves and writes %d", tx.read, tx.written)
	}
	if tx, left := spill(); tx.scans != 1 || tx.read != spillLeaves || tx.written != spillLeaves || left != members/2 {
		t.Errorf("a spill reads %d leaves, writes %d, and leaves %d changes", tx.read, tx.written, left)
	}
	verify()
	write(func(i int) dict.ID { return dict.ID(1001 + 10*i) }, 3, false)
	verify()
	if tx, left := spill(); tx.read != spillLeaves || tx.written != spillLeaves+1 || left > 0 { // the first becomes two
		t.Errorf("the second spill reads %d leaves, writes %d, and leaves %d changes", tx.read, tx.written, left)
	}
	verify()
	write(func(i int) dict.ID { return dict.ID(1002 + 10*i) }, members, false)
	write(func(i int) dict.ID { return dict.ID(1003 + 10*i) }, 3, false)
	write(func(i int) dict.ID { return dict.ID(1003 + 10*(members-3+i)) }, 3, false)
	if tx, left := spill(); tx.scans != 2 || tx.read > mostPassed+6 || left > 0 {
		t.Errorf("a spill of changes at both ends takes %d scans, reads %d leaves, and leaves %d changes", tx.scans, tx.read, left)
	}
	verify()
}

// TestSetsOfAllSizes fills sets in one partition, and in as many as there can be, by ids in no order, or ascending in each partition. The rows of all
// partitions together hold as many members as one row does, and the others are in leaves that are at least half full, with dates.
func TestSetsOfAllSizes(t *testing.T) {
	const kind, subject = kinds.Kind(1), dict.ID(9)
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		layout := format.Layout{Settings: []dict.Settings{dict.DefaultSettings, dict.SharedSettings}[seed%2]}
		shards, n := []int{1 << 14, int(layout.Settings.Partitions)}[seed/2%2], []int{200, 16_000}[seed/4]
		merger := NewMerger(Limits{Row: 256})
		store := memkv.Open(memkv.Options{Merger: merger})
		update := func(fn func(tx kv.Txn) error) {
			must(t, store.Update(t.Context(), fn))
		}
		for from := 0; from < n; from += 200 {
			var changes []SetChange
			for i := range 200 {
				changes = append(changes, SetChange{Kind: kind, Subject: subject, Member: layout.Settings.Start(uint32(rng.IntN(shards)), 0) + dict.ID(from+i), Date: 7})
			}
			slices.SortFunc(changes, compareSetChanges)
			update(func(tx kv.Txn) error { return new(rows).write(tx, changes, layout, merger) })
			update(func(tx kv.Txn) error { _, err := read.OpenSet(tx, layout, kind, subject); return err })
			for _, key := range merger.TakeLarge(n, func(string) bool { return true }) {
				update(func(tx kv.Txn) error { _, err := merger.SpillOne(tx, layout, []byte(key)); return err })
			}
		}
		above, leaves := 0, map[uint8][]int{} // members in rows; those of each leaf
		must(t, store.View(t.Context(), func(r kv.Reader) error {
			dated := 0
			all, err := read.Dates(r, layout, kind, subject, &read.DateRange{Last: 7}, func(_ uint64, d uint32) error {
				if d == 7 {
					dated++
				}
				return nil
			})
			if n > 200 && dated < n-3*256 || all != uint64(n) {
				t.Errorf("%s, %d shards: %d of %d members have a date", layout.Settings, shards, dated, all)
			}
			return errors.Join(err, kv.ScanPrefix(r, format.AppendRowKey(nil, kind, subject), func(key, v []byte) error {
				_, _, part, _, isLeaf, err := layout.ParseSetKey(key)
				_, _, members, _, merr := format.MergeRows(subject, v)
				if isLeaf {
					leaves[part] = append(leaves[part], len(members))
				} else {
					above += len(members)
				}
				return errors.Join(err, merr)
			}))
		}))
		if above > 256 || n > 200 && len(leaves) != int(layout.Settings.Partitions) {
			t.Errorf("%s, %d shards: %d members are in rows, leaves are in %d partitions", layout.Settings, shards, above, len(leaves))
		}
		for part, sizes := range leaves {
			if len(sizes) > 1 && (slices.Min(sizes) < 64 || slices.Max(sizes) > 128) {
				t.Errorf("%s, %d shards: the leaves of partition %d have %d members", layout.Settings, shards, part, sizes)
			}
		}
	}
}
