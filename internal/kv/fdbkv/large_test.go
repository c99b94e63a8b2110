//go:build fdb

package fdbkv_test

import (
	"bytes"
	"errors"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/kvtest"
)

// A value of more than 50,000 bytes is refused, however it comes about, and nothing of
// its transaction is written: what is appended to a longer one is lost without a word
// once it no longer fits. To one that is taken, all that is merged is kept.
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
	if err != nil {
		t.Fatal(err)
	}
	if err := set(largest); err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // many of them are appended, and not folded
		if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Merge(key, []byte{byte(100 + i), 1}); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	err = s.View(t.Context(), func(r kv.Reader) error {
		v, _, err := r.Get(key)
		for i := range 100 {
			if !bytes.Contains(v, []byte{byte(100 + i), 1}) {
				t.Errorf("what was merged as %d. is lost", i)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
