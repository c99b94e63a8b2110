package pebblekv

import (
	"errors"
	"testing"

	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
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
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
