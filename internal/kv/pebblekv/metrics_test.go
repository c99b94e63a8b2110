package pebblekv

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/internal/kv"
)

// The engine's metrics change with what it does. A closed store has none.
func TestMetrics(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true})
	value := func(name string) (sum float64) {
		t.Helper()
		reg := prometheus.NewRegistry()
		reg.MustRegister(s.Collector())
		families, err := reg.Gather()
		must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "skein_store_"+name {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	if n := value("level_written_bytes_total"); n != 0 {
		t.Errorf("a new store has written %v bytes of tables", n)
	}
	err := s.Update(t.Context(), func(x kv.Txn) error { x.Set([]byte{1, 0}, make([]byte, 64<<10)); return nil })
	must(t, err, s.Compact(t.Context()))
	if value("level_written_bytes_total") == 0 || value("level_bytes") == 0 {
		t.Error("a flush has written nothing")
	}
	err = s.View(t.Context(), func(r kv.Reader) error {
		_, _, err := r.Get([]byte{1, 0})
		return err
	})
	must(t, err)
	if value("cache_reads_total") == 0 {
		t.Error("a read has read nothing")
	}
	c := s.Collector()
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("%v: %v", problems, err)
	}
	must(t, s.Close())
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("a closed store has %d metrics", n)
	}
}
