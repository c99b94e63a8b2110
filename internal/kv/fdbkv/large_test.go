//go:build fdb

package fdbkv_test

import (
	"bytes"
	"errors"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

// A value of more than 50,000 bytes is an error, and nothing of its transaction is written:
// FoundationDB silently drops appends that do not fit. A value of 50,000 bytes has room for
// all merges.
func TestLargeValues(t *testing.T) {
	s := open(t, kvtest.LastByte{}, nil)
	const largest = 50_000
	value := bytes.Repeat([]byte{7, 1}, (largest+2)/2)
	key := []byte("k")
	set := func(n int) error {
		return s.Update(t.Context(), func(tx kv.Txn) error {
			tx.Set([]byte("with it"), nil)
			tx.Set(key, value[:n])
			return nil
		})
	}
	for _, n := range []int{largest + 1, largest + 2, 60_000, 99_000, 100_001} {
		value = append(value, make([]byte, max(0, n-len(value)))...)
		if err := set(n); !errors.Is(err, kv.ErrTooLarge) {
			t.Errorf("a value of %d bytes: %v", n, err)
		}
	}
	err := s.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, _ []byte) (bool, error) { t.Errorf("%q was written", k); return true, nil })
	})
	must(t, err)
	must(t, set(largest))
	for i := range 100 { // most of them are appended, not folded
		must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Merge(key, []byte{byte(100 + i), 1}); return nil }))
	}
	err = s.View(t.Context(), func(r kv.Reader) error {
		v, _, err := r.Get(key)
		for i := range 100 {
			if !bytes.Contains(v, []byte{byte(100 + i), 1}) {
				t.Errorf("merge %d is lost", i)
			}
		}
		return err
	})
	must(t, err)
}
