package pebblekv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"skein.blue/internal/kv"
)

// MultiGet, with one iterator or several, returns what single Gets return, from the memtable
// and from tables, whatever the Reader read before.
func TestMultiGetIsGet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20})
	key := func(i int) []byte { return fmt.Appendf(nil, "%c%d", "mk"[i%2], i) }
	const stored = 3000
	for part := range 3 { // in the last level, in an upper one, in the memtable
		err := s.Update(t.Context(), func(tx kv.Txn) error {
			for range stored / 2 {
				i := rng.IntN(stored)
				switch {
				case i%2 == 0:
					tx.Merge(key(i), []byte{byte(part), 1, byte(part + 1), byte(rng.IntN(2))})
				case i%7 == 0:
					tx.Delete(key(i))
				default:
					tx.Set(key(i), make([]byte, rng.IntN(200)))
				}
			}
			tx.DeleteRange(fmt.Appendf(nil, "k%d", 100*part), fmt.Appendf(nil, "k%d", 100*part+20))
			return nil
		})
		switch {
		case err != nil:
		case part == 0:
			err = s.Compact(t.Context())
		case part == 1:
			err = s.db.Flush()
		}
		must(t, err)
	}
	read := func(r kv.Reader) error {
		for _, n := range []int{1, fewKeys - 1, fewKeys, keysAtOnce - 1, keysAtOnce + 1, keysPerWorker, 2*keysPerWorker - 1, 2 * keysPerWorker, 3*keysPerWorker + 17, 2000, 20, fewKeys} {
			keys := make([][]byte, n)
			want := make([]string, n)
			found := 0
			for i := range keys {
				keys[i] = key(rng.IntN(2 * stored))
				if i > 0 && i%5 == 0 {
					keys[i] = keys[rng.IntN(i)]
				}
				v, ok, err := r.Get(keys[i])
				if err != nil {
					return err
				}
				if want[i] = "-"; ok {
					want[i] = string(v)
					found++
				}
			}
			err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
				got := "-"
				if ok {
					got = string(v)
				}
				if got != want[i] || ok && v == nil && len(want[i]) > 0 {
					return fmt.Errorf("%d keys: %s is %q, but Get returns %q", n, keys[i], got, want[i])
				}
				return nil
			})
			if err != nil {
				return err
			}
			if n > 1000 && (found < n/8 || found > n*7/8) {
				t.Errorf("%d of %d keys exist, a poor mix", found, n)
			}
		}
		return nil
	}
	must(t, s.View(t.Context(), read))
	must(t, s.Update(t.Context(), func(tx kv.Txn) error { return errors.Join(read(tx), read(tx.Snapshot())) }))
}

// The values of one MultiGet do not share memory, even if one worker read them, or their keys are equal.
func TestMultiGetLargeValues(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20})
	const n = 3 * keysPerWorker
	var keys [][]byte
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		for i := range n {
			keys = append(keys, fmt.Appendf(nil, "k%d", i))
			v := make([]byte, (i*i)%9000)
			for j := range v {
				v[j] = byte(i)
			}
			tx.Set(keys[i], v)
		}
		return nil
	})
	if err == nil {
		err = s.View(t.Context(), func(r kv.Reader) error {
			for range 2 { // the second MultiGet reuses memory
				err := r.MultiGet(append(keys, keys...), func(i int, v []byte, ok bool) error {
					last := i >= n // equal keys may share a value
					i %= n
					if !ok || len(v) != (i*i)%9000 {
						return fmt.Errorf("key %d: %d bytes, %v", i, len(v), ok)
					}
					for _, c := range v {
						if c != byte(i) {
							return fmt.Errorf("key %d has byte %d, of another key", i, c)
						}
					}
					_ = append(v, make([]byte, 100)...)
					if last {
						clear(v) // must not change the value of another key
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, err)
}
