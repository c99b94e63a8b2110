package kvtest

import (
	"errors"
	"slices"
	"testing"

	"skein.blue/internal/kv"
)

// bound converts a bound from a test table: "-" means none.
func bound(s string) []byte {
	if s == "-" {
		return nil
	}
	return []byte(s)
}

// testNames checks Engine, Merger and Sync.
func testNames(t *testing.T, s kv.Store) {
	if name := s.Engine(); !slices.Contains([]string{"pebble", "memory", "fdb"}, name) {
		t.Errorf("the engine is %q", name)
	}
	if m := s.Merger(); m == nil || m.Name() != (LastByte{}).Name() {
		t.Errorf("the merger is %v", m)
	}
	update(t, s, func(tx kv.Txn) { tx.Set([]byte("a"), nil) })
	if err := s.Sync(); err != nil {
		t.Errorf("Sync: %v", err)
	}
}

// testRangeBytes measures ranges with any bounds, even above all keys, and after Close. The
// contract leaves the size of empty ranges open, so they are not tested.
func testRangeBytes(t *testing.T, s kv.Store) {
	update(t, s, func(tx kv.Txn) {
		for _, k := range []string{"\x00", "a", "b", "\xff", "\xff\x01", "\xff\xff", "\xff\xff\xff\xff"} {
			tx.Set([]byte(k), make([]byte, 100))
		}
	})
	for _, lo := range []string{"-", "", "\x00", "a", "b", "\xfe", "\xff", "\xff\x00", "\xff\x01", "\xff\xff", "\xff\xff\xff\xff", "\xff\xff\xff\xff\xff"} {
		for _, hi := range []string{"-", "", "\x00", "a", "b", "\xff", "\xff\xff"} {
			if hi != "-" && string(bound(lo)) >= hi {
				continue
			}
			if _, err := s.RangeBytes(bound(lo), bound(hi)); err != nil {
				t.Errorf("[%q, %q): %v", lo, hi, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"-", "-"}, {"a", "b"}, {"\xff\x01", "-"}} {
		if _, err := s.RangeBytes(bound(c[0]), bound(c[1])); !errors.Is(err, kv.ErrClosed) {
			t.Errorf("[%q, %q) after Close: %v", c[0], c[1], err)
		}
	}
}
