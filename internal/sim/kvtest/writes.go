package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"skein.blue/internal/kv"
)

// testDeleteRanges deletes every kind of range.
func testDeleteRanges(t *testing.T, s kv.Store) {
	const keys = "abcdef"
	for _, c := range []struct{ lo, hi, left string }{
		{"a", "a", "abcdef"},
		{"-", "b", "bcdef"},
		{"", "c", "cdef"},
		{"b", "d", "adef"},
		{"b\x00", "d\x00", "abef"},
		{"a", "\xff", ""},
		{"g", "\xff", "abcdef"},
		{"\x00", "a", "abcdef"},
	} {
		update(t, s, func(tx kv.Txn) {
			for _, k := range keys {
				tx.Set([]byte(string(k)), nil)
			}
		})
		update(t, s, func(tx kv.Txn) { tx.DeleteRange(bound(c.lo), bound(c.hi)) })
		view(t, s, func(r kv.Reader) {
			if got := scan(t, r, "", "", false, 0); got != c.left {
				t.Errorf("after deleting [%q, %q): %q, want %q", c.lo, c.hi, got, c.left)
			}
		})
	}
	// A merge before DeleteRange is deleted with the range; a merge after it begins
	// without the old value.
	update(t, s, func(tx kv.Txn) {
		tx.Merge([]byte("m1"), []byte{1, 1})
		tx.Merge([]byte("m2"), []byte{1, 1})
	})
	update(t, s, func(tx kv.Txn) {
		tx.Merge([]byte("m1"), []byte{2, 1})
		tx.DeleteRange([]byte("m"), []byte("n"))
		tx.Merge([]byte("m2"), []byte{3, 1})
		tx.Set([]byte("m3"), []byte{4, 1})
		tx.DeleteRange([]byte("m3"), []byte("m4"))
	})
	view(t, s, func(r kv.Reader) {
		if got := get(t, r, "m1") + get(t, r, "m2") + get(t, r, "m3"); got != "-\x03\x01-" {
			t.Errorf("got %q", got)
		}
	})
}

// testCallersBounds reuses the memory of keys and bounds as soon as a call has returned.
func testCallersBounds(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		for _, k := range "abcdefgh" {
			tx.Set([]byte(string(k)), nil)
		}
	})
	lo, hi := []byte("b"), []byte("d")
	update(t, s, func(tx kv.Txn) {
		lo[0], hi[0] = 'b', 'd'
		tx.DeleteRange(lo, hi)
		lo[0], hi[0] = 'f', 'g'
		tx.DeleteRange(lo, hi)
		lo[0], hi[0] = 'a', 'z'
		tx.Delete(lo)
		lo[0] = 'h'
	})
	view(t, s, func(r kv.Reader) {
		lo[0], hi[0] = 'd', 'h'
		for _, want := range []string{"deg", "eg", "g", "g", ""} {
			var got []byte
			err := r.Scan(lo, hi, false, func(k, _ []byte) (bool, error) { got = append(got, k...); return true, nil })
			if err != nil || string(got) != want {
				t.Errorf("from %s: %q, want %q: %v", lo, got, want, err)
			}
			lo[0]++
		}
		keys := [][]byte{lo, hi, []byte("d"), []byte("e"), []byte("g"), []byte("x"), []byte("y"), []byte("z")}
		lo[0], hi[0] = 'd', 'x'
		for range 2 {
			found := 0
			if err := r.MultiGet(keys, func(_ int, _ []byte, ok bool) error {
				if ok {
					found++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if want := 4; found != want && hi[0] == 'x' || found != want+1 && hi[0] == 'h' {
				t.Errorf("found %d keys", found)
			}
			hi[0] = 'h'
		}
	})
}

// testLong writes keys and values up to the engine's limits.
func testLong(t *testing.T, e Engine) {
	s := e.Open(t, LastByte{})
	rng := rand.New(rand.NewPCG(1, 1))
	h := State{}
	sizes := []int{1, 255, 256, 1000, e.Fits.Key - 1, e.Fits.Key}
	for i, n := range sizes {
		key, value := bytes.Repeat([]byte{byte(i * 51)}, n), make([]byte, []int{0, 1, 1 << 10, 50_000, e.Fits.Value - 1, e.Fits.Value}[i])
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		update(t, s, func(tx kv.Txn) { tx.Set(key, value) })
		h[string(key)] = string(value)
	}
	look := func() {
		view(t, s, func(r kv.Reader) {
			h.Equal(t, r)
			keys := make([][]byte, 0, len(h))
			for k := range h {
				keys = append(keys, []byte(k), append([]byte(k), 0))
			}
			err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
				if ok != (i%2 == 0) || ok && string(v) != h[string(keys[i])] {
					t.Errorf("a key of %d bytes: %d bytes, %v", len(keys[i]), len(v), ok)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	look()
	if e.Reopen != nil {
		s = e.Reopen(t, s)
		look()
	}
	for k := range h {
		update(t, s, func(tx kv.Txn) { tx.Delete([]byte(k)) })
	}
	h = State{}
	look()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// testTooLarge exceeds a limit within a transaction of valid writes. Nothing is written,
// and the store still works.
func testTooLarge(t *testing.T, e Engine) {
	s := e.Open(t, LastByte{})
	update(t, s, func(tx kv.Txn) { tx.Set([]byte("kept"), nil) })
	for name, c := range map[string]struct {
		limit int
		write func(tx kv.Txn)
	}{
		"key":   {e.TooLarge.Key, func(tx kv.Txn) { tx.Set(make([]byte, e.TooLarge.Key), nil) }},
		"value": {e.TooLarge.Value, func(tx kv.Txn) { tx.Set([]byte("b"), make([]byte, e.TooLarge.Value)) }},
		"transaction": {e.TooLarge.Txn, func(tx kv.Txn) {
			for i := 0; i*90_000 < e.TooLarge.Txn; i++ {
				tx.Set(fmt.Appendf(nil, "t%d", i), make([]byte, 90_000))
			}
		}},
	} {
		if c.limit == 0 {
			continue
		}
		err := s.Update(context.Background(), func(tx kv.Txn) error {
			tx.Set([]byte("before"), nil)
			tx.DeleteRange([]byte("kept"), []byte("l"))
			c.write(tx)
			tx.Set([]byte("z"), nil)
			return nil
		})
		if !errors.Is(err, kv.ErrTooLarge) {
			t.Errorf("a large %s: %v", name, err)
		}
		view(t, s, func(r kv.Reader) {
			if got := scan(t, r, "", "", false, 0); got != "kept" {
				t.Errorf("after a large %s: %.100q", name, got)
			}
		})
	}
	update(t, s, func(tx kv.Txn) { tx.Delete([]byte("kept")) })
	view(t, s, func(r kv.Reader) {
		if got := scan(t, r, "", "", false, 0); got != "" {
			t.Errorf("afterwards: %.100q", got)
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// testWriteSkew has writers that read both keys of a pair, and delete one only if both
// exist. One key of each pair must remain.
func testWriteSkew(t *testing.T, s kv.Store) {
	const pairs = 20
	key := func(pair, side int) []byte { return fmt.Appendf(nil, "%d/%d", pair, side) }
	update(t, s, func(tx kv.Txn) {
		for p := range pairs {
			tx.Set(key(p, 0), nil)
			tx.Set(key(p, 1), nil)
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for p := range pairs {
				err := s.Update(context.Background(), func(tx kv.Txn) error {
					found := 0
					err := tx.MultiGet([][]byte{key(p, 0), key(p, 1)}, func(_ int, _ []byte, ok bool) error {
						if ok {
							found++
						}
						return nil
					})
					if found == 2 {
						tx.Delete(key(p, w%2))
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	view(t, s, func(r kv.Reader) {
		n := 0
		if err := r.Scan(nil, nil, false, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil {
			t.Fatal(err)
		}
		if n != pairs {
			t.Errorf("%d pairs left %d keys", pairs, n)
		}
	})
}
