package pebblekv

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/internal/kv"
)

// The engine counts the bytes of tables. A closed store has no metrics.
func TestMetrics(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true})
	must(t, s.Update(t.Context(), func(x kv.Txn) error { x.Set([]byte{1, 0}, make([]byte, 64<<10)); return nil }), s.Compact(t.Context()))
	c := s.Collector()
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("%v: %v", problems, err)
	}
	if n := testutil.CollectAndCount(c, "skein_store_level_bytes"); n != 7 {
		t.Errorf("the tables of %d levels are counted", n)
	}
	must(t, s.Close())
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("a closed store has %d metrics", n)
	}
}
