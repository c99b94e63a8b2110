package kvtest

import (
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
