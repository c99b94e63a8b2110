package graph_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A value of the store is malformed: records, a set, its dates, or the id of a URI. The writer goes on, at each start, and
// so do compactions. Whatever is answered is right, except about accounts that are known to have missed something.
func TestMalformedValues(t *testing.T) {
	var stopped, spoiled, unread int
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h, model := oracle.NewHistory(seed, 20), oracle.New()
		merger := write.NewMerger(write.Limits{Row: 6, Chunk: 5})
		var store kv.Store = memkv.Open(memkv.Options{Merger: merger})
		onDisk := seed%6 == 0
		if onDisk {
			p, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20, Merger: merger})
			must(t, err)
			store = p
		}
		var log bytes.Buffer
		open := func() *graph.Store {
			o := graph.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			if !onDisk && seed%4 == 0 {
				o.Intern.Settings = dict.SharedSettings // several partitions, and lanes
			}
			s, err := graph.Open(t.Context(), store, o)
			must(t, err)
			return s
		}
		s, subjects := open(), map[string]map[string]bool{} // all that were ever named
		apply := func(events int) {
			var b batch.Batch
			for range events {
				e := h.Next()
				model.Apply(e)
				fill(&b, e)
				for _, record := range e.Ops {
					for _, o := range record.Edges() {
						if subjects[o.Kind] == nil {
							subjects[o.Kind] = map[string]bool{}
						}
						subjects[o.Kind][o.Subject] = o.Subject != ""
					}
				}
			}
			if err := s.Apply(t.Context(), "source", &b); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for s.Erasing() {
				if err := s.EraseSlice(t.Context()); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if p, is := store.(*pebblekv.Store); is {
				if err := p.Compact(t.Context()); err != nil {
					t.Fatalf("seed %d: compacting: %v", seed, err)
				}
			}
		}
		apply(600)
		var keys []string
		must(t, store.View(t.Context(), func(r kv.Reader) error {
			return r.Scan(nil, []byte{0xff}, false, func(k, _ []byte) (bool, error) {
				if strings.Contains("rvok", string(k[:1])) && !bytes.HasPrefix(k, []byte{format.KeyReverse, byte(kinds.Hidden)}) || bytes.HasPrefix(k, []byte{dict.KeyID, byte(dict.URI)}) {
					keys = append(keys, string(k))
				}
				return true, nil
			})
		}))
		key := keys[rng.IntN(len(keys))]
		must(t, store.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte(key), bytes.Repeat([]byte{0xff}, 10+rng.IntN(20))); return nil }))
		for range 4 {
			must(t, s.Close(t.Context()))
			s = open()
			apply(150)
		}
		if strings.Contains(log.String(), "its repo is desynchronized") {
			spoiled++
		}
		if strings.Contains(log.String(), "its records stay") {
			stopped++
		}
		unread += compareReadable(t, seed, key, s, model, subjects)
		must(t, store.Close())
	}
	t.Logf("%d times commits were set aside, %d times an erasure; %d sets could not be read", spoiled, stopped, unread)
	if spoiled < 6 || unread < 6 {
		t.Error("hardly anything needed the malformed values")
	}
}

// A deleted account whose records cannot be erased stays hidden, whatever is said of it, and ends neither the writer nor its next
// start, nor what an archive, an operator or a host brings. It is known to have missed something, and nobody fetches its repo.
func TestMalformedErasure(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	did, star := []byte("did:web:gone.example"), []byte("did:web:star.example")
	open := func() *graph.Store {
		s, err := graph.Open(t.Context(), store, graph.Options{Queued: func([]batch.Queued) {}})
		must(t, err)
		return s
	}
	s, seq := open(), format.Seq(0)
	from := func(source string, add func(b *batch.Batch)) {
		t.Helper()
		seq++
		var b batch.Batch
		add(&b)
		if source != "" {
			b.Seen(seq, nil)
		}
		must(t, s.Apply(t.Context(), source, &b))
		eraseAll(t, s)
	}
	apply := func(add func(b *batch.Batch)) { t.Helper(); from("source", add) }
	commit := func(b *batch.Batch) {
		b.AddCommit(seq, &batch.Commit{DID: did, Rev: dict.AppendTID(nil, uint64(seq)<<30), Data: make([]byte, 32)})
		b.AddPut(1, dict.AppendTID(nil, uint64(seq)<<30), star)
	}
	apply(commit)
	spoil := func() {
		t.Helper()
		must(t, store.Update(t.Context(), func(tx kv.Txn) error {
			return kv.ScanPrefix(tx, []byte{format.KeyRecord}, func(k, _ []byte) error { tx.Set(k, bytes.Repeat([]byte{0xff}, 12)); return nil })
		}))
	}
	spoil()
	state := func(hidden, missed bool) (st format.RepoState) {
		t.Helper()
		must(t, s.View(t.Context(), func(sn *ask.View) (err error) {
			var row *format.Resync
			st, _, row, err = sn.Account(string(did))
			if st.Has(format.FlagHidden) != hidden || st.Has(format.FlagDesync) != missed || !st.Has(format.FlagErasing) || st.Complete() || row != nil {
				t.Errorf("event %d: the account's state is %+v, queued %+v; hidden should be %v, missed %v", seq, st, row, hidden, missed)
			}
			return err
		}))
		return st
	}
	beside := func() { // what the stream does not bring, alone in its lane
		t.Helper()
		from("archive", func(b *batch.Batch) {
			b.AddArchived(seq, did, dict.AppendTID(nil, 1<<30))
			b.AddPut(1, []byte("a"), star)
		})
		from("archive", func(b *batch.Batch) { b.AddArchivedAccount(seq, did, true, false) })
		from("archive", func(b *batch.Batch) { b.AddArchivedSync(seq, did, dict.AppendTID(nil, 1<<30)) })
		from("", func(b *batch.Batch) { b.AddResync(did, batch.Cause{Reason: "test"}) })
		st := state(true, true)
		from("", func(b *batch.Batch) {
			b.AddAnswer(did, true, &st)
			b.AddSnapshot(&batch.Snapshot{DID: did, Rev: dict.AppendTID(nil, 1<<50), Data: make([]byte, 32), First: true, Last: true})
		})
		state(true, true)
	}
	apply(func(b *batch.Batch) { b.AddAccount(seq, did, false, true) })
	state(true, false)
	for range 2 { // the second time in a process that has not met the value yet
		apply(commit)
		state(true, true)
		apply(func(b *batch.Batch) { b.AddAccount(seq, did, true, false) })
		state(true, true)
		beside()
		s = open()
		beside()
		apply(func(b *batch.Batch) { b.AddAccount(seq, did, false, false) })
		state(true, true)
		s = open()
	}
	// So it is with one whose records a #sync of an archive replaces, but that is not hidden.
	did = []byte("did:web:archived.example")
	must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }))
	row := func(rev uint64) func(b *batch.Batch) {
		return func(b *batch.Batch) {
			b.AddArchived(seq, did, dict.AppendTID(nil, rev))
			b.AddPut(1, dict.AppendTID(nil, rev), star)
		}
	}
	from("archive", row(1<<30))
	spoil()
	from("archive", func(b *batch.Batch) { b.AddArchivedSync(seq, did, dict.AppendTID(nil, 1<<31)) })
	state(false, false)
	from("archive", row(1<<32))
	state(false, true)
	if doubtful, err := s.EndArchive(t.Context()); err != nil || !slices.Equal(doubtful, []string{string(did)}) {
		t.Errorf("to be fetched: %q, %v", doubtful, err)
	}
	// A row of an archive that needs a malformed value is left out, and its account has missed something.
	did = []byte("did:web:row.example")
	from("archive", row(1<<33))
	spoil()
	from("archive", func(b *batch.Batch) {
		b.AddArchived(seq, did, dict.AppendTID(nil, 1<<34))
		b.AddDelete(1, dict.AppendTID(nil, 1<<33))
	})
	must(t, s.View(t.Context(), func(sn *ask.View) error {
		st, _, row, err := sn.Account(string(did))
		if !st.Has(format.FlagDesync) || st.Rev != 1<<33 || row == nil || row.Reason != "damaged" {
			t.Errorf("after the row: %+v, queued %+v", st, row)
		}
		return err
	}))
}

// compareReadable compares the sets that can be read with the model's, but for accounts that have missed something. It
// returns how many cannot be read.
func compareReadable(t *testing.T, seed uint64, key string, s *graph.Store, model *oracle.Model, subjects map[string]map[string]bool) (unread int) {
	t.Helper()
	want := model.Views()
	err := s.View(t.Context(), func(sn *ask.View) error {
		missed := map[string]bool{}
		for _, did := range slices.Sorted(maps.Keys(model.Repos)) {
			st, _, _, err := sn.Account(did)
			if err != nil {
				return err
			}
			missed[did] = st.Has(format.FlagDesync) || st.Has(format.FlagErasing)
		}
		compare := func(what, kind, of string, got []string, err error, want []string) {
			if errors.Is(err, dict.ErrStored) {
				unread++
				return
			}
			if err != nil {
				t.Errorf("seed %d, key %x: %s %s of %s: %v", seed, key, what, kind, of, err)
				return
			}
			known := func(all []string) []string {
				return slices.DeleteFunc(slices.Clone(all), func(m string) bool { return missed[m] })
			}
			if !slices.Equal(known(got), known(want)) {
				t.Errorf("seed %d, key %x: %s %s of %s: got %q, want %q", seed, key, what, kind, of, known(got), known(want))
			}
		}
		for _, k := range kinds.All {
			for did := range model.Repos {
				if missed[did] {
					continue
				}
				got, err := members(sn, k.To.Is(), func(id dict.ID) (sets.Set, error) { return sn.Subjects(k.Kind, id, ask.Window{}) }, dict.DID, did)
				compare("forward", k.Name, did, got, err, want.Forward[k.Name][did])
			}
			for subject := range subjects[k.Name] {
				got, err := members(sn, dict.DID, func(id dict.ID) (sets.Set, error) { return actors(sn, k.Kind, id) }, k.To.Is(), subject)
				compare("reverse", k.Name, subject, got, err, want.Reverse[k.Name][subject])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("seed %d, key %x: %v", seed, key, err)
	}
	return unread
}
