package intern

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// filled returns a store with some hundred strings, and its twin.
func filled(t *testing.T, o Options) (*memkv.Store, *twin) {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	in := openAs(t, store, o)
	rng := rand.New(rand.NewPCG(9, 9))
	w := newTwin()
	for range 10 {
		var b Batch
		var all []named
		for range 60 {
			s := draw(rng, 300)
			all = append(all, s)
			b.Add(s.ns, []byte(s.s))
			if author, ok := authorOf(s); ok {
				all = append(all, author)
			}
		}
		must(t, put(t.Context(), store, in, &b))
		for _, s := range all {
			w.note(t, s, b.ID(b.Add(s.ns, []byte(s.s))))
		}
	}
	in.Close()
	return store, w
}

func viewOf(t *testing.T, s kv.Store, fn func(r kv.Reader) error) {
	t.Helper()
	must(t, s.View(t.Context(), fn))
}

// TestLookup: Lookup finds the known strings and no others, including authors of URIs, and
// creates none.
func TestLookup(t *testing.T) {
	for _, partitions := range []uint8{1, 4} {
		store, w := filled(t, Options{Settings: dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: partitions}})
		before := store.Counts()
		size, err := store.RangeBytes(nil, nil)
		must(t, err)
		rng := rand.New(rand.NewPCG(3, 3))
		found, missing := 0, 0
		for range 30 {
			var b Batch
			var all []named
			var at []int
			for range 50 {
				s := draw(rng, 1000)
				all, at = append(all, s), append(at, b.Add(s.ns, []byte(s.s)))
			}
			for range 2 { // the second lookup has fewer strings
				viewOf(t, store, func(r kv.Reader) error { return Lookup(r, &b) })
				for i, s := range all {
					if got := b.ID(at[i]); got != w.ids[s] || b.Made(at[i]) {
						t.Fatalf("%.60s is %d, want %d", s.s, got, w.ids[s])
					}
					if w.ids[s] == dict.None {
						missing++
					} else {
						found++
					}
				}
			}
		}
		after, err := store.RangeBytes(nil, nil)
		if err != nil || after != size || store.Counts() != before {
			t.Errorf("Lookup wrote: %+v, %+v, %d and %d bytes, %v", before, store.Counts(), size, after, err)
		}
		if found < 200 || missing < 200 {
			t.Errorf("%d found, %d missing: the test proves too little", found, missing)
		}
	}
}

// TestStringsInAnyOrder: Strings returns each id's string at its index, in any order, repeatedly,
// including strings of over 256 bytes.
func TestStringsInAnyOrder(t *testing.T) {
	store, w := filled(t, Options{Settings: dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 1}})
	rng := rand.New(rand.NewPCG(3, 3))
	for _, ns := range dict.Namespaces {
		var ids []dict.ID
		long := 0
		for id, s := range w.strings[ns] {
			ids = append(ids, id)
			if len(s) > 256 {
				long++
			}
		}
		if long < 5 {
			t.Errorf("only %d strings of %s are long", long, ns)
		}
		for _, n := range []int{0, 1, 2, 50, 1000} {
			asked := make([]dict.ID, n)
			for i := range asked {
				if asked[i] = ids[rng.IntN(len(ids))]; i > 0 && i%4 == 0 {
					asked[i] = asked[i-1]
				}
			}
			next := 0
			viewOf(t, store, func(r kv.Reader) error {
				return Strings(r, ns, asked, func(i int, s []byte) error {
					if i != next || string(s) != w.strings[ns][asked[i]] {
						t.Fatalf("%d. of %d is %.60s, want %.60s", i, n, s, w.strings[ns][asked[i]])
					}
					next++
					return nil
				})
			})
			if next != n {
				t.Errorf("%d of %d strings", next, n)
			}
		}
		// An error of the callback ends it.
		boom, calls := errors.New("boom"), 0
		err := store.View(t.Context(), func(r kv.Reader) error {
			return Strings(r, ns, ids, func(i int, _ []byte) error {
				if calls++; i == 2 {
					return boom
				}
				return nil
			})
		})
		if !errors.Is(err, boom) || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
}

// TestIdsWithoutStrings: at an id without a string, wherever it is, Strings ends with an error that names it.
func TestIdsWithoutStrings(t *testing.T) {
	settings := dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 1}
	store, w := filled(t, Options{Settings: settings})
	for _, ns := range dict.Namespaces {
		known := dict.None
		for id := range w.strings[ns] {
			known = max(known, id)
		}
		for _, none := range []dict.ID{dict.None, known + 1, known + 64, 1 << 39, dict.FirstReserved} {
			if _, is := w.strings[ns][none]; is {
				continue
			}
			viewOf(t, store, func(r kv.Reader) error {
				for _, ids := range [][]dict.ID{{none}, {known, none}, {none, known}, {known, none, known}} {
					calls := 0
					err := Strings(r, ns, ids, func(int, []byte) error { calls++; return nil })
					if err == nil || !strings.Contains(err.Error(), fmt.Sprint(uint64(none))) || calls > slices.Index(ids, none) {
						t.Errorf("%v: %d calls, %v", ids, calls, err)
					}
				}
				return nil
			})
		}
	}
}

// TestMalformedRows: malformed rows are errors, and do not give ids or strings.
func TestMalformedRows(t *testing.T) {
	const did = "did:web:a.com"
	group := dict.AppendGroupKey(nil, dict.DID, 64)
	for name, c := range map[string]struct {
		key, value []byte
		read       func(r kv.Reader) error
	}{
		"an id": {
			dict.PackDID([]byte{dict.KeyID, byte(dict.DID)}, []byte(did)),
			[]byte{1, 2, 3},
			func(r kv.Reader) error {
				var b Batch
				b.Add(dict.DID, []byte(did))
				return Lookup(r, &b)
			},
		},
		"an id with trailing bytes": {
			[]byte{dict.KeyID, byte(dict.URI), 'x'},
			make([]byte, 6),
			func(r kv.Reader) error {
				return EachString(r, dict.URI, func(_ []byte, _ dict.ID) error { return nil })
			},
		},
		"a group": {
			group,
			[]byte{dict.KindPLC << dict.GroupBits, 1},
			func(r kv.Reader) error {
				return Strings(r, dict.DID, []dict.ID{64}, func(int, []byte) error { return nil })
			},
		},
		"a missing long string": {
			group,
			[]byte{dict.KindOwn << dict.GroupBits},
			func(r kv.Reader) error {
				return Strings(r, dict.DID, []dict.ID{64}, func(int, []byte) error { return nil })
			},
		},
		"a lease": {
			[]byte{dict.KeyLease, byte(dict.DID), 1},
			make([]byte, 30),
			func(r kv.Reader) error { return leasesOf(r, func(dict.Lease) error { return nil }) },
		},
		"a lease with a longer key": {
			append(dict.AppendLeaseKey(nil, dict.DID, 1, 1), 0),
			make([]byte, 30),
			func(r kv.Reader) error { return leasesOf(r, func(dict.Lease) error { return nil }) },
		},
		"a count of claims": {
			[]byte{dict.KeyClaims, byte(dict.DID), 0, 0},
			make([]byte, 7),
			func(r kv.Reader) error { _, err := Claimed(r); return err },
		},
		"a count of claims of an unknown namespace": {
			[]byte{dict.KeyClaims, 9, 0, 0},
			make([]byte, 8),
			func(r kv.Reader) error { _, err := Claimed(r); return err },
		},
	} {
		store := memkv.Open(memkv.Options{Merger: Merger{}})
		viewOf(t, store, func(r kv.Reader) error {
			if err := c.read(r); err != nil && name[0] == 'a' && !strings.Contains(err.Error(), "has no string") {
				t.Errorf("%s: without it: %v", name, err)
			}
			return nil
		})
		must(t, store.Update(t.Context(), func(tx kv.Txn) error { tx.Set(c.key, c.value); return nil }))
		viewOf(t, store, func(r kv.Reader) error {
			if err := c.read(r); err == nil {
				t.Errorf("%s is read", name)
			}
			return nil
		})
	}
}
