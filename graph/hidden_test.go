package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// AllStrings returns every string of a namespace.
func (s *Store) AllStrings(t *testing.T, ns dict.Namespace) (all []string) {
	t.Helper()
	must(t, s.kv.View(t.Context(), func(r kv.Reader) error {
		var ids []dict.ID
		err := intern.EachString(r, ns, func(_ []byte, id dict.ID) error { ids = append(ids, id); return nil })
		return errors.Join(err, intern.Strings(r, ns, ids, func(_ int, str []byte) error { all = append(all, string(str)); return nil }))
	}))
	return all
}

// countedReader counts what is read for the hidden set.
type countedReader struct {
	kv.Reader

	keys, scans        int    // of changes; of versions and sets
	versioned, changes func() // called before versions, and changes, are read; may be nil
}

func (r *countedReader) MultiGet(keys [][]byte, each func(int, []byte, bool) error) error {
	r.keys += len(keys)
	if r.changes != nil {
		r.changes()
	}
	return r.Reader.MultiGet(keys, each)
}

func (r *countedReader) Scan(lo, hi []byte, reverse bool, each func(_, _ []byte) (bool, error)) error {
	if r.scans++; r.versioned != nil {
		r.versioned()
	}
	return r.Reader.Scan(lo, hi, reverse, each)
}

// hiders are the writers of a store, which hide accounts and show them again.
type hiders struct {
	store   *memkv.Store
	rng     *rand.Rand
	writers []*Store
	lanes   int // 0: any number
	seq     format.Seq
	hidden  map[string]bool
}

// begin replaces the writers by n others.
func (h *hiders) begin(t *testing.T, settings dict.Settings, n int) {
	t.Helper()
	h.end(t)
	for range n {
		lanes := cmp.Or(h.lanes, 1+h.rng.IntN(8))
		s, err := Open(t.Context(), h.store, Options{Intern: intern.Options{Settings: settings}, Joins: n > 1, Lanes: lanes})
		must(t, err)
		h.writers = append(h.writers, s)
	}
	if n > 1 {
		Settle(t, h.writers...)
	}
}

func (h *hiders) end(t *testing.T) {
	t.Helper()
	for _, s := range h.writers {
		must(t, s.Close(t.Context()))
	}
	h.writers = nil
}

// change hides some accounts of many, and shows others.
func (h *hiders) change(t *testing.T, events, accounts int) {
	t.Helper()
	var b batch.Batch
	for range events {
		h.seq++
		did, hide := fmt.Sprintf("did:plc:a%d", h.rng.IntN(accounts)), h.rng.IntN(2) == 0
		b.AddAccount(h.seq, []byte(did), !hide, false)
		b.Seen(h.seq, nil)
		if delete(h.hidden, did); hide {
			h.hidden[did] = true
		}
	}
	for _, s := range h.writers {
		must(t, s.Apply(t.Context(), "relay", &b))
	}
}

// view calls fn with the store's state.
func (h *hiders) view(t *testing.T, fn func(r kv.Reader)) {
	t.Helper()
	must(t, h.store.View(t.Context(), func(r kv.Reader) error { fn(r); return nil }))
}

// hiddenIn returns a node's set in the state that r reads.
func hiddenIn(node *hiddenCache, r kv.Reader) (got ask.Hidden, err error) {
	at, err := read.Hidden(r)
	if err == nil {
		got, err = node.of(r, at)
	}
	return got, err
}

// same checks a node's set in the state that r reads, in which n accounts are hidden.
func same(t *testing.T, node *hiddenCache, r kv.Reader, n int) (keys, scans int) {
	t.Helper()
	counted := &countedReader{Reader: r}
	got, err := hiddenIn(node, counted)
	must(t, err)
	want, err := read.Bitmap(r, node.layout, kinds.Hidden, 0)
	must(t, err)
	if !got.Set.Equals(want) || want.GetCardinality() != uint64(n) {
		t.Fatalf("%v are hidden, want %v, %d of them", got.Set.ToArray(), want.ToArray(), n)
	}
	for _, id := range want.ToArray() {
		if !got.Has(dict.ID(id)) {
			t.Fatalf("the filter excludes %d", id)
		}
	}
	return counted.keys, counted.scans
}

// TestHiddenSets: several nodes ask now and then, of the newest state or of an older one, while writers come and go in other numbers
// and with other lanes. Each has exactly the set of the state that it asks of. It reads the whole set only if it lacks one, is far
// behind, or the writers have changed.
func TestHiddenSets(t *testing.T) {
	var followed, whole int
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) {
			h := &hiders{store: open(memkv.Faults{Seed: seed, Conflict: 0.05, Unknown: 0.05}), rng: rand.New(rand.NewPCG(seed, 5)), hidden: map[string]bool{}}
			settings := []dict.Settings{dict.DefaultSettings, {ShardBits: 8, LeaseSize: 256, Partitions: 8}}[seed%2]
			nodes := make([]*hiddenCache, 4)
			for i := range nodes {
				nodes[i] = &hiddenCache{core: &core{layout: format.Layout{Settings: settings}}}
			}
			h.begin(t, settings, 1)
			ask := func(r kv.Reader, n int) {
				for i, node := range nodes {
					if h.rng.IntN(1+3*i) > 0 {
						continue
					}
					at, err := read.Hidden(r)
					if c, failed := commonIn(node.core, r); err != nil || failed != nil || c.hidden != at {
						t.Fatalf("the state has %v, and %v is kept (%v)", at, c.hidden, errors.Join(err, failed))
					}
					if keys, _ := same(t, node, r, n); keys > 0 {
						followed++
					} else {
						whole++
					}
				}
			}
			for range 40 {
				switch h.rng.IntN(12) {
				case 0:
					h.begin(t, settings, 1+h.rng.IntN(int(min(settings.Partitions, 3))))
				case 1: // more changes than are kept
					for range h.rng.IntN(2 * format.HidingRing) {
						h.change(t, 1, 40)
					}
				}
				h.view(t, func(older kv.Reader) {
					n := len(h.hidden)
					h.change(t, 1+h.rng.IntN(6), 40)
					h.view(t, func(r kv.Reader) { ask(r, len(h.hidden)) })
					ask(older, n)
				})
			}
			h.end(t)
		})
	}
	if followed < 300 {
		t.Errorf("%d sets were followed, %d read whole or known", followed, whole)
	}
}

// TestHiddenReads: of a change, a node reads one key besides the version, whatever the size of the set, and only once for all of
// its questions. A row of changes that cannot be read is made up for by reading the whole set.
func TestHiddenReads(t *testing.T) {
	settings := dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 8}
	h := &hiders{store: open(memkv.Faults{}), rng: rand.New(rand.NewPCG(1, 5)), hidden: map[string]bool{}, lanes: 1}
	h.begin(t, settings, 1)
	h.change(t, 3*format.HidingMax, 1<<30)
	node := &hiddenCache{core: &core{layout: format.Layout{Settings: settings}}}
	h.view(t, func(r kv.Reader) { same(t, node, r, len(h.hidden)) })
	for range 50 {
		h.change(t, 1, 1<<30)
		h.view(t, func(r kv.Reader) {
			if keys, scans := same(t, node, r, len(h.hidden)); keys > 1 || scans != 1 {
				t.Errorf("read %d keys, %d ranges", keys, scans)
			}
			if keys, scans := same(t, node, r, len(h.hidden)); keys > 0 || scans != 1 {
				t.Errorf("the second question read %d keys, %d ranges", keys, scans)
			}
		})
	}
	before := len(h.hidden)
	h.change(t, 3*format.HidingMax, 1<<30) // several versions in one write
	h.view(t, func(r kv.Reader) {
		if keys, scans := same(t, node, r, len(h.hidden)); keys < 2 || scans != 1 || len(h.hidden) < before+format.HidingMax {
			t.Errorf("read %d keys, %d ranges", keys, scans)
		}
	})

	h.change(t, 5, 1<<30)
	h.view(t, func(older kv.Reader) {
		n := len(h.hidden)
		h.change(t, 5, 1<<30)
		h.view(t, func(r kv.Reader) { same(t, node, r, len(h.hidden)) })
		if keys, scans := same(t, node, older, n); keys == 0 || scans != 1 {
			t.Errorf("an older state: read %d keys, %d ranges", keys, scans)
		}
	})

	h.change(t, 9, 1<<30)
	h.view(t, func(older kv.Reader) {
		for n := 0; n <= format.HidingRing; {
			was := len(h.hidden)
			if h.change(t, 1, 1); len(h.hidden) != was {
				n++
			}
		}
		h.view(t, func(r kv.Reader) { // ViewAcross goes on in it after the versions were read
			crossing := &countedReader{Reader: older}
			crossing.versioned = func() {
				if crossing.scans > 1 {
					crossing.Reader = r
				}
			}
			crossing.changes = func() { crossing.Reader = r }
			same(t, node, crossing, len(h.hidden))
		})
	})

	h.change(t, 9, 1<<30)
	const questions = 30
	var arrived, done sync.WaitGroup
	var reads atomic.Int32
	arrived.Add(questions)
	for range questions {
		done.Go(func() {
			h.view(t, func(r kv.Reader) {
				_, err := hiddenIn(node, &countedReader{Reader: r, versioned: arrived.Done, changes: func() {
					reads.Add(1)
					arrived.Wait() // nearly all find the set stale
				}})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
	done.Wait()
	if n := reads.Load(); n != 1 {
		t.Errorf("the changes were read %d times", n)
	}

	for _, v := range [][]byte{nil, []byte("{"), []byte(`{"Version":7}`)} {
		h.change(t, 20, 1<<30)
		must(t, h.store.Update(t.Context(), func(tx kv.Txn) error {
			tx.DeleteRange(format.KeyHiding, kv.PrefixEnd(format.KeyHiding))
			at, err := read.Hidden(tx)
			for part, version := range at.Parts {
				if version > 0 && v != nil {
					tx.Set(format.HidingKey(uint8(part), version), v)
				}
			}
			return err
		}))
		h.view(t, func(r kv.Reader) { same(t, node, r, len(h.hidden)) })
	}
	h.end(t)
}
