package upgrade

import (
	"os"
	"testing"

	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/kvtest"
)

func TestMain(m *testing.M) { os.Exit(kvtest.Main(m)) }

// TestConcurrentRunsOnFoundationDB needs an installed FoundationDB.
func TestConcurrentRunsOnFoundationDB(t *testing.T) {
	for range 5 {
		store := kvtest.Open(t, kvtest.Options(t, write.NewMerger(write.Limits{})))
		put(t, store, gunzip(t, "v3-several.kv.gz"))
		threeAtOnce(t, store, Steps, format.Newest)
		if err := check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil); err != nil {
			t.Fatal(err)
		}
	}
}
