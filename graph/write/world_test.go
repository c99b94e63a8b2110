package write_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
)

// smallLimits spill early and often.
var smallLimits = write.Limits{Row: 6, Chunk: 5}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// memory returns an empty store in memory.
func memory(l write.Limits) *memkv.Store {
	return memkv.Open(memkv.Options{Merger: write.NewMerger(l)})
}

// open opens a graph, whose writes are what these tests are about.
func open(t *testing.T, store kv.Store, o graph.Options) *graph.Store {
	t.Helper()
	s, err := graph.Open(t.Context(), store, o)
	must(t, err)
	return s
}

// queues are the options of a graph that queues repos with missed events.
var queues = graph.Options{Queued: func([]batch.Queued) {}}

func apply(t *testing.T, s *graph.Store, source string, b *batch.Batch) {
	t.Helper()
	must(t, s.Apply(t.Context(), source, b))
}

// erase erases the records of deleted accounts.
func erase(t *testing.T, s *graph.Store) {
	t.Helper()
	for s.Erasing() {
		must(t, s.EraseSlice(t.Context()))
	}
}

// account returns an account's state, and its row in the queue.
func account(t *testing.T, s *graph.Store, did string) (st format.RepoState, row *format.Resync) {
	t.Helper()
	must(t, s.View(t.Context(), func(v *ask.View) (err error) { st, _, row, err = v.Account(did); return err }))
	return st, row
}

func counts(t *testing.T, s *graph.Store) (c format.Counts) {
	t.Helper()
	must(t, s.View(t.Context(), func(v *ask.View) (err error) { c, err = v.Counts(); return err }))
	return c
}

// verify checks a store.
func verify(t *testing.T, store kv.Store) {
	t.Helper()
	must(t, check.Store(t.Context(), store, func(p string) { t.Errorf("check: %s", p) }, nil))
}

func closeAll(t *testing.T, s *graph.Store, store kv.Store) {
	t.Helper()
	must(t, errors.Join(s.Close(t.Context()), store.Close()))
}

func kindOf(name string) kinds.Kind { return kinds.ByName(name).Kind }

func rkeyAt(micros uint64) []byte { return dict.AppendTID(nil, micros<<format.ClockBits) }

// members reads one reverse set (of of) or forward set, without the hidden accounts, as sorted strings.
func members(v *ask.View, ns dict.Namespace, read func(dict.ID) (sets.Set, error), ofNS dict.Namespace, of string) (out []string, err error) {
	var b intern.Batch
	index := b.Add(ofNS, []byte(of))
	if err := v.Lookup(&b); err != nil {
		return nil, err
	}
	set, err := read(b.ID(index))
	if err != nil {
		return nil, err
	}
	var list []dict.ID
	for _, id := range set.List(nil) {
		if ns == dict.URI || !v.IsHidden(dict.ID(id)) {
			list = append(list, dict.ID(id))
		}
	}
	err = v.Strings(ns, list, func(_ int, s []byte) error { out = append(out, string(s)); return nil })
	slices.Sort(out)
	return out, err
}

// actors reads a reverse set.
func actors(v *ask.View, k kinds.Kind, subject dict.ID) (sets.Set, error) {
	a, err := v.Actors(k, subject)
	if err != nil {
		return sets.Set{}, err
	}
	return a.All()
}

// reading counts the heads that writes look up together (lastChunks: in the last look-up), the scans of chunks, and what they read, other
// look-ups included.
type reading struct {
	kv.Store

	chunks, lastChunks, scans, scanned, bytes int
}

type readingTxn struct {
	kv.Txn

	of *reading
}

func (r *reading) Update(ctx context.Context, fn func(kv.Txn) error) error {
	return r.Store.Update(ctx, func(tx kv.Txn) error { return fn(readingTxn{tx, r}) })
}

func (t readingTxn) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if len(keys) > 0 && keys[0][0] == format.KeyRecord {
		t.of.chunks += len(keys)
		t.of.lastChunks = len(keys)
	}
	return t.Txn.MultiGet(keys, each)
}

func (t readingTxn) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok, err = t.Txn.Get(key)
	if key[0] == format.KeyRecord {
		t.of.bytes += len(key) + len(value)
	}
	return value, ok, err
}

func (t readingTxn) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	if lo[0] != format.KeyRecord {
		return t.Txn.Scan(lo, hi, reverse, each)
	}
	t.of.scans++
	return t.Txn.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		t.of.scanned++
		t.of.bytes += len(k) + len(v)
		return each(k, v)
	})
}

// A history of random events is written to stores of one process and of several. They conflict, end with an unknown
// outcome, and crash.
var settings = map[string]dict.Settings{"one": dict.DefaultSettings, "several": {ShardBits: 8, LeaseSize: 256, Partitions: 4}}

// faulty returns the options of a store for such a history.
func faulty(seed uint64) memkv.Options {
	return memkv.Options{
		Merger: write.NewMerger(smallLimits),
		Faults: memkv.Faults{Seed: seed, Conflict: 0.05, Unknown: 0.05},
		Limits: memkv.Limits{Key: 10_000, Value: 100_000, Txn: 40_000, Age: time.Minute},
	}
}
