package intern

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// Len returns the number of strings, including authors.
func (b *Batch) Len() int { return len(b.items) }

// named is a string of a namespace.
type named struct {
	ns dict.Namespace
	s  string
}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// drawDID draws one of n DIDs. Most have a packed form. Some are as long as a packed form, or
// too long for a group of strings.
func drawDID(rng *rand.Rand, n int) string {
	i := rng.IntN(n)
	switch i % 8 {
	case 0:
		return fmt.Sprintf("did:web:u%d.example.com", i)
	case 1:
		return fmt.Sprintf("did:web:%07d", i) // 15 bytes
	case 2:
		return fmt.Sprintf("did:web:%s%d.com", strings.Repeat("long.", 50+i%40), i)
	}
	return "did:plc:" + string(base32Of(uint64(i)))
}

// postsFrom is a TID of a whole millisecond.
const postsFrom = 1_767_225_595_144 * 1000 << dict.ClockBits

// drawURI draws a URI of one of n authors, in each of the stored forms.
func drawURI(rng *rand.Rand, n int) string {
	did := drawDID(rng, n)
	from := uint64(postsFrom)
	if rng.IntN(8) == 0 {
		from = []uint64{0, 1<<60 - 1<<60%(1000<<dict.ClockBits), 1 << 60, 1<<63 - 1<<63%(1000<<dict.ClockBits) - 1<<30}[rng.IntN(4)]
	}
	tid := string(dict.AppendTID(nil, from+uint64(rng.IntN(4))*500_000<<dict.ClockBits+uint64(rng.IntN(2))*17))
	switch rng.IntN(7) {
	case 0:
		return fmt.Sprintf("at://%s/app.bsky.feed.generator/%s", did, tid)
	case 1:
		return fmt.Sprintf("at://%s/com.example.thing/%s", did, tid)
	case 2:
		return fmt.Sprintf("at://%s/app.bsky.feed.post/%s", did, strings.Repeat("k", 1+rng.IntN(300)))
	case 3:
		return fmt.Sprintf("at://a%0*d.bc", 1+rng.IntN(9), rng.IntN(10)) // some are as long as packed forms
	}
	return fmt.Sprintf("at://%s/app.bsky.feed.post/%s", did, tid)
}

func draw(rng *rand.Rand, n int) named {
	if rng.IntN(2) == 0 {
		return named{dict.DID, drawDID(rng, n)}
	}
	return named{dict.URI, drawURI(rng, n)}
}

// authorOf returns the author that Add adds for a string.
func authorOf(n named) (author named, ok bool) {
	rest, ok := strings.CutPrefix(n.s, "at://did:")
	did, _, _ := strings.Cut(rest, "/")
	return named{dict.DID, "did:" + did}, ok && n.ns == dict.URI
}

// twin is the naive dictionary: the id of each string, and the string of each id.
type twin struct {
	ids     map[named]dict.ID
	strings [len(dict.Namespaces) + 1]map[dict.ID]string
}

func newTwin() *twin {
	w := &twin{ids: map[named]dict.ID{}}
	for _, ns := range dict.Namespaces {
		w.strings[ns] = map[dict.ID]string{}
	}
	return w
}

// note records the id of a string, and fails if the string or the id had another.
func (w *twin) note(t *testing.T, n named, id dict.ID) {
	t.Helper()
	if was, ok := w.ids[n]; id == dict.None || ok && was != id {
		t.Fatalf("%.60s was %d and is %d", n.s, was, id)
	}
	if other, ok := w.strings[n.ns][id]; ok && other != n.s {
		t.Fatalf("%d is %.60s and %.60s", id, other, n.s)
	}
	w.ids[n], w.strings[n.ns][id] = id, n.s
}

// equalAuthors fails unless the authors of URIs, and their record keys, are those that their strings name.
func (w *twin) equalAuthors(t *testing.T, r kv.Reader, ids []dict.ID) {
	t.Helper()
	err := Authors(r, ids, func(i int, got dict.ID, tid uint64) error {
		s := w.strings[dict.URI][ids[i]]
		author, ok := authorOf(named{dict.URI, s})
		if want := w.ids[author]; got != want || ok != (got != dict.None) {
			t.Errorf("the author of %.60s is %d, want %d", s, got, want)
		}
		key, isTID := dict.ParseTID(s[strings.LastIndexByte(s, '/')+1:])
		if ok && isTID != (tid != math.MaxUint64) || ok && isTID && tid != key {
			t.Errorf("the key of %.60s is %d, want %d", s, tid, key)
		}
		return nil
	})
	must(t, err)
}

// equals fails unless the store's dictionary equals the twin in both directions.
func (w *twin) equals(t *testing.T, store kv.Store) {
	t.Helper()
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		var b Batch
		all := slices.Collect(maps.Keys(w.ids))
		at := make([]int, len(all))
		for i, n := range all {
			at[i] = b.Add(n.ns, []byte(n.s))
		}
		if err := Lookup(r, &b); err != nil {
			return err
		}
		for i, n := range all {
			if got := b.ID(at[i]); got != w.ids[n] {
				t.Errorf("%.60s is %d in the store, want %d", n.s, got, w.ids[n])
			}
		}
		for _, ns := range dict.Namespaces {
			var ids []dict.ID
			if err := EachString(r, ns, func(_ []byte, id dict.ID) error { ids = append(ids, id); return nil }); err != nil {
				return err
			}
			if len(ids) != len(w.strings[ns]) {
				t.Errorf("the store has %d strings of %s, want %d", len(ids), ns, len(w.strings[ns]))
			}
			err := Strings(r, ns, ids, func(i int, s []byte) error {
				if want := w.strings[ns][ids[i]]; string(s) != want {
					t.Errorf("%s %d is %.60s, want %.60s", ns, ids[i], s, want)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if ns == dict.URI {
				w.equalAuthors(t, r, ids)
			}
			forms := 0
			if err := EachForm(r, ns, func(dict.ID, []byte) error { forms++; return nil }); err != nil {
				return err
			}
			if forms != len(ids) { // a string has two ids
				t.Errorf("the store has the strings of %d ids of %s, and the ids of %d strings", forms, ns, len(ids))
			}
		}
		return nil
	}))
}

// audited fails if an id of the twin lies in a block that was never leased.
func (w *twin) audited(t *testing.T, store kv.Store, s dict.Settings) {
	t.Helper()
	leased := map[dict.BlockKey]bool{}
	viewOf(t, store, func(r kv.Reader) error {
		return leasesOf(r, func(l dict.Lease) error { leased[l.BlockKey] = true; return nil })
	})
	for n, id := range w.ids {
		if !leased[s.BlockOf(n.ns, id)] {
			t.Errorf("%.60s has id %d, of a block that was never leased", n.s, id)
		}
	}
}

// faulty is a store whose commits sometimes fail or have unknown outcomes.
func faulty(seed uint64) *memkv.Store {
	return memkv.Open(memkv.Options{Merger: Merger{}, Faults: memkv.Faults{Seed: seed, Conflict: 0.15, Unknown: 0.15}})
}

// openAs opens an Interner.
func openAs(t *testing.T, s kv.Store, o Options) Interner {
	t.Helper()
	in, err := Open(t.Context(), s, o)
	must(t, err)
	return in
}

// put resolves and commits a batch.
func put(ctx context.Context, s kv.Store, in Interner, b *Batch) error {
	if err := in.Prepare(ctx, b, b.Len()); err != nil {
		return err
	}
	err := s.Update(ctx, func(tx kv.Txn) error {
		b.Retry()
		_, err := in.Resolve(tx, b)
		return err
	})
	if err == nil {
		in.Committed(b)
	}
	return err
}

var errGiveUp = errors.New("given up")

// Merger is the merger of stores that have nothing but a dictionary.
type Merger struct{}

// Name implements kv.Merger.
func (Merger) Name() string { return "skein.intern.v2" }

// Fold implements kv.Merger.
func (Merger) Fold(dst, _ []byte, values [][]byte, _ bool) ([]byte, error) {
	return dict.FoldGroups(dst, values)
}

// leasesOf calls each for every lease of the store, by namespace, shard and block.
func leasesOf(r kv.Reader, each func(dict.Lease) error) error {
	return kv.ScanPrefix(r, []byte{dict.KeyLease}, func(k, v []byte) error {
		l, err := dict.DecodeLease(k, v)
		if err != nil {
			return err
		}
		return each(l)
	})
}
