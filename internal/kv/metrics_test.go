package kv_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/internal/kv"
)

// Metrics count every report; nil counts nothing.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	for _, m := range []*kv.Metrics{nil, kv.NewMetrics(reg, func(key []byte) string { return "of " + string(key) })} {
		m.Committed(time.Second)
		m.Retried("conflict")
		m.Retried("conflict")
		m.Conflicted([]byte("k"))
	}
	want := `
# HELP skein_store_conflicts_total Key ranges that another writer changed before a commit, as the engine reports them, by keyspace.
# TYPE skein_store_conflicts_total counter
skein_store_conflicts_total{keyspace="of k"} 1
# HELP skein_store_retries_total Retried writes, by cause.
# TYPE skein_store_retries_total counter
skein_store_retries_total{cause="conflict"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "skein_store_conflicts_total", "skein_store_retries_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(reg, "skein_store_commit_duration_seconds"); n != 1 || err != nil {
		t.Error(n, err)
	}
}
