package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"skein.blue/internal/kv"
)

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
