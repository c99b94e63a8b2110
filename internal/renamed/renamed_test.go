package renamed_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/internal/renamed"
)

// Both names serve the same values of a counter, a gauge and a histogram, with their labels.
func TestBothNamesServeTheSame(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skein_new_total", Help: "New."}, []string{"kind"})
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "skein_new_seconds", Help: "New.", Buckets: []float64{1}}, []string{"method"})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_new_ids", Help: "New."})
	renamed.Register(reg, counter, "skein_old_total", "skein_new_total", "kind")
	renamed.Register(reg, histogram, "skein_old_seconds", "skein_new_seconds", "method")
	renamed.Register(reg, gauge, "skein_old_ids", "skein_new_ids")
	counter.WithLabelValues("like").Add(3)
	counter.WithLabelValues("follow").Inc()
	histogram.WithLabelValues("query").Observe(0.5)
	gauge.Set(7)
	values := func(name string, help func(suffix string) string) string {
		text := `
# HELP NAME_ids ` + help("_ids") + `
# TYPE NAME_ids gauge
NAME_ids 7
# HELP NAME_seconds ` + help("_seconds") + `
# TYPE NAME_seconds histogram
NAME_seconds_bucket{method="query",le="1"} 1
NAME_seconds_bucket{method="query",le="+Inf"} 1
NAME_seconds_sum{method="query"} 0.5
NAME_seconds_count{method="query"} 1
# HELP NAME_total ` + help("_total") + `
# TYPE NAME_total counter
NAME_total{kind="follow"} 1
NAME_total{kind="like"} 3
`
		return strings.ReplaceAll(text, "NAME", name)
	}
	now := values("skein_new", func(string) string { return "New." })
	before := values("skein_old", func(suffix string) string {
		return "Deprecated: renamed to skein_new" + suffix + ". The next release no longer serves this name."
	})
	if err := testutil.GatherAndCompare(reg, strings.NewReader(now+before)); err != nil {
		t.Error(err)
	}
}
