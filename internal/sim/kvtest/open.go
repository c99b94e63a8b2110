package kvtest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
)

var prefixes atomic.Int64

// Options returns the options of a new store on the shared cluster. It skips the
// test if FoundationDB is not installed, or not built in.
func Options(t testing.TB, m kv.Merger) fdbkv.Options {
	t.Helper()
	if !fdbkv.Built {
		t.Skip("built without FoundationDB: go test -tags fdb")
	}
	return fdbkv.Options{
		Location: fdbkv.Location{ClusterFile: Shared(t).File, Prefix: fmt.Sprintf("test%d", prefixes.Add(1))},
		Create:   true, Merger: m,
	}
}

// Open opens a store, or fails the test.
func Open(t testing.TB, o fdbkv.Options) kv.Store {
	t.Helper()
	s, err := fdbkv.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
