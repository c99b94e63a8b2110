package pebblekv

import (
	"errors"
	"testing"

	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"skein.blue/internal/kv"
)

// must ends a test at an error.
func must(t testing.TB, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

// hooked calls hook before each operation of a file system, which fails with its error.
func hooked(fs vfs.FS, hook func(errorfs.Op) error) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(hook))
}

// openForTest opens a store with the suite's Merger, and closes it at the end of the test.
func openForTest(t *testing.T, o Options) *Store {
	t.Helper()
	o.Merger = kvtest.LastByte{}
	s, err := Open(o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// get returns the value of a key in a store, which is "" if there is none.
func get(t *testing.T, s kv.Store, key string) (value string) {
	t.Helper()
	must(t, s.View(t.Context(), func(r kv.Reader) error {
		v, _, err := r.Get([]byte(key))
		value = string(v)
		return err
	}))
	return value
}

// set commits a value.
func set(t *testing.T, s kv.Store, key, value string) {
	t.Helper()
	must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte(key), []byte(value)); return nil }))
}
