package intern

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// TestDrawerTwin: over lives that end with Close and without it, a Drawer gives every string one
// id forever, and every id one string. Commits fail and have unknown outcomes; transactions are
// abandoned, repeated, and resolved in parts.
func TestDrawerTwin(t *testing.T) {
	for seed := range uint64(8) {
		settings := dict.Settings{ShardBits: []uint8{14, 4, 1, 32}[seed%4], LeaseSize: []uint32{65536, 64, 16, 1024}[seed%4], Partitions: 1}
		o := Options{Settings: settings, CacheBytes: 1 << (10 + seed), FilterBytes: 1 << 20}
		t.Run(settings.String(), func(t *testing.T) { testDrawerTwin(t, o, seed) })
	}
}

func testDrawerTwin(t *testing.T, o Options, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	store := faulty(seed)
	w := newTwin()
	abandoned := 0
	for life := range 12 {
		o.Owner = fmt.Sprint(life)
		in, _ := openAs(t, store, o).(*Drawer)
		in.strings.fillAfter = 50
		var b Batch
		for range 10 {
			if rng.IntN(3) > 0 {
				b = Batch{}
			} else {
				b.Reset()
			}
			var all []named
			var at []int
			add := func(n int) {
				for range n {
					s := draw(rng, 300)
					all, at = append(all, s), append(at, b.Add(s.ns, []byte(s.s)))
				}
			}
			add(rng.IntN(40))
			must(t, in.Prepare(t.Context(), nil, 200))
			later := rng.IntN(20)
			attempt := func(giveUp bool) error {
				added := false
				return store.Update(t.Context(), func(tx kv.Txn) error {
					b.Retry()
					if _, err := in.Resolve(tx, &b); err != nil {
						return err
					}
					if !added { // once: the batch keeps the strings of an earlier attempt
						add(later)
						added = true
					}
					if _, err := in.Resolve(tx, &b); err != nil {
						return err
					}
					for i, s := range all {
						if was, known := w.ids[s]; known && (b.ID(at[i]) != was || b.Made(at[i])) {
							t.Fatalf("%.60s is %d, made %v, and was %d", s.s, b.ID(at[i]), b.Made(at[i]), was)
						}
					}
					if giveUp {
						return errGiveUp
					}
					return nil
				})
			}
			if rng.IntN(4) == 0 {
				if err := attempt(true); !errors.Is(err, errGiveUp) {
					t.Fatal(err)
				}
				abandoned++
				in.Abandon(&b)
				if n := len(b.checkouts[dict.DID].out); n > 0 {
					t.Fatalf("%d ranges of an abandoned batch are not for others", n)
				}
				for i := range at {
					if b.Made(at[i]) {
						t.Fatal("Made reports an abandoned string")
					}
				}
				if rng.IntN(2) == 0 {
					continue
				}
				later = 0
			}
			must(t, attempt(false))
			in.Committed(&b)
			for i, s := range all {
				w.note(t, s, b.ID(at[i]))
				if author, ok := authorOf(s); ok {
					w.note(t, author, b.ID(b.Add(dict.DID, []byte(author.s))))
				}
			}
		}
		if rng.IntN(2) == 0 { // it crashes
			in.leases.end()
			in.leases.background.Wait()
			continue
		}
		in.Close()
	}
	w.equals(t, store)
	w.audited(t, store, o.Settings)
	if abandoned == 0 || len(w.ids) < 300 {
		t.Errorf("the test proves too little: %d batches abandoned, %d strings", abandoned, len(w.ids))
	}
}

// TestDrawerCounts: without faults, Resolve returns exactly the new strings. A batch without
// Committed or Abandon loses its ids, and nothing else.
func TestDrawerCounts(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	o := Options{Settings: dict.Settings{ShardBits: 4, LeaseSize: 1024, Partitions: 1}}
	in := openAs(t, store, o)
	rng := rand.New(rand.NewPCG(1, 1))
	w := newTwin()
	for round := range 60 {
		var b Batch
		var want [len(dict.Namespaces) + 1]int
		fresh := map[named]bool{}
		for range rng.IntN(30) {
			s := draw(rng, 200)
			b.Add(s.ns, []byte(s.s))
			fresh[s] = true
			if author, ok := authorOf(s); ok {
				fresh[author] = true
			}
		}
		for s := range fresh {
			if _, known := w.ids[s]; !known {
				want[s.ns]++
			}
		}
		must(t, in.Prepare(t.Context(), nil, b.Len()))
		err := store.Update(t.Context(), func(tx kv.Txn) error {
			made, err := in.Resolve(tx, &b)
			if made != want {
				t.Errorf("round %d: it made %v, want %v", round, made, want)
			}
			if again, err := in.Resolve(tx, &b); err != nil || again != [len(dict.Namespaces) + 1]int{} {
				t.Errorf("round %d: again it made %v, %v", round, again, err)
			}
			if round%5 == 4 {
				return errGiveUp
			}
			return err
		})
		if round%5 == 4 {
			if !errors.Is(err, errGiveUp) {
				t.Fatal(err)
			}
			b.Reset() // without Committed or Abandon
			continue
		}
		must(t, err)
		in.Committed(&b)
		for s := range fresh {
			w.note(t, s, b.ID(b.Add(s.ns, []byte(s.s))))
		}
	}
	in.Close()
	w.equals(t, store)
	w.audited(t, store, o.Settings)
}

// TestNoLease: if more strings are new than Prepare knew of, Resolve returns ErrNoLease and
// creates none. With enough ids, it continues.
func TestNoLease(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	o := Options{Settings: dict.Settings{ShardBits: 4, LeaseSize: 16, Partitions: 1}}
	in := openAs(t, store, o)
	var b Batch
	w := newTwin()
	const n = 200
	for i := range n {
		b.Add(dict.DID, fmt.Appendf(nil, "did:web:%d.com", i))
	}
	short := 0
	for _, room := range []int{0, 1, 30, n} {
		must(t, in.Prepare(t.Context(), nil, room))
		err := store.Update(t.Context(), func(tx kv.Txn) error {
			b.Retry()
			made, err := in.Resolve(tx, &b)
			if errors.Is(err, ErrNoLease) && made[dict.DID] != 0 {
				t.Errorf("Resolve created %v without ids", made)
			}
			return err
		})
		if errors.Is(err, ErrNoLease) {
			short++
			if room == n {
				t.Error("Prepare knew of all strings")
			}
			w.equals(t, store)
			continue
		}
		must(t, err)
		in.Committed(&b)
		for i := range n {
			w.note(t, named{dict.DID, fmt.Sprintf("did:web:%d.com", i)}, b.ID(i))
		}
	}
	if short == 0 || len(w.ids) != n {
		t.Errorf("%d times too few ids, %d strings", short, len(w.ids))
	}
	in.Close()
	w.equals(t, store)
	w.audited(t, store, o.Settings)
}
