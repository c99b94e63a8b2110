package graph

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// scansOf counts the scans of a Reader.
type scansOf struct {
	kv.Prefetcher
	scans int
}

func (s *scansOf) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	s.scans++
	return s.Prefetcher.Scan(lo, hi, reverse, each)
}

// TestCommonRows: a Reader with the common rows returns what the store has, for any key and any range, and reads the
// common rows once.
func TestCommonRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	bounds := [][]byte{
		{},
		[]byte("l"), []byte("m"), format.KeyBackfill, format.KeyCounts, format.HeaderKey, format.KeyHidden, format.KeyHoles, format.KeyKinds,
		format.KeyLacking, kv.PrefixEnd(format.KeyLacking), format.KeySecret, format.KeyWriter, []byte("n"),
	}
	draw := func() []byte {
		key := bytes.Clone(bounds[rng.IntN(len(bounds))])
		for range rng.IntN(3) {
			key = append(key, byte(rng.IntN(3)))
		}
		return key
	}
	for round := range 200 {
		store := memkv.Open(memkv.Options{})
		if err := store.Update(t.Context(), func(tx kv.Txn) error {
			for n := range rng.IntN(60) {
				if key := draw(); len(key) > 0 {
					tx.Set(key, fmt.Append(nil, round, n))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		err := store.View(t.Context(), func(r kv.Reader) error {
			p, ok := r.(kv.Prefetcher)
			if !ok {
				t.Fatal("not a Prefetcher")
			}
			counted := &scansOf{Prefetcher: p}
			c := withCommonRows(counted)
			rows := func(r kv.Reader, lo, hi []byte, reverse bool, most int) (all string) {
				err := r.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
					all += fmt.Sprintf("%x=%s ", k, v)
					most--
					return most > 0, nil
				})
				return fmt.Sprint(all, err)
			}
			value := func(r kv.Reader, key []byte) string {
				v, ok, err := r.Get(key)
				return fmt.Sprint(string(v), ok, err)
			}
			for range 100 {
				lo, hi, reverse, most := draw(), draw(), rng.IntN(4) == 0, 1+rng.IntN(9)
				if rng.IntN(8) == 0 {
					hi = nil
				}
				if hi != nil && bytes.Compare(lo, hi) > 0 {
					lo, hi = hi, lo
				}
				if got, want := rows(c, lo, hi, reverse, most), rows(r, lo, hi, reverse, most); got != want {
					t.Fatalf("%q to %q, reverse %v: %s, want %s", lo, hi, reverse, got, want)
				}
				if len(lo) == 0 {
					continue
				}
				if got, want := value(c, lo), value(r, lo); got != want {
					t.Fatalf("%q: %s, want %s", lo, got, want)
				}
			}
			counted.scans = 0
			for _, prefix := range [][]byte{format.KeyCounts, format.KeyHidden, format.KeyHoles, format.KeyLacking} {
				_ = rows(c, prefix, kv.PrefixEnd(prefix), false, 9)
				_ = value(c, prefix)
			}
			if counted.scans > 1 {
				t.Errorf("the common rows took %d scans", counted.scans)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
