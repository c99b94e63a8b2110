package kv

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are of a store's latency, skein_store_*: the duration of writes, their retries and conflicts, and
// how long queries wait for a cluster's read versions. A nil *Metrics counts nothing.
type Metrics struct {
	commit     prometheus.Histogram
	version    prometheus.Histogram
	trips      prometheus.Counter
	retries    *prometheus.CounterVec // cause
	conflicts  *prometheus.CounterVec // keyspace
	keyspaceOf func(key []byte) string
}

// NewMetrics registers the metrics. keyspaceOf names the keyspace of a key.
func NewMetrics(reg prometheus.Registerer, keyspaceOf func(key []byte) string) *Metrics {
	m := &Metrics{
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_store_commit_duration_seconds", Help: "Duration of one atomic write, reads included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16), // above the five seconds of an alert
		}),
		version: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_store_read_version_duration_seconds", Help: "How long queries waited for a read version of FoundationDB; most share one that is at most 0.1 s old and do not wait. Empty with the embedded engine.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		trips: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_store_round_trips_total", Help: "How often queries waited for an answer of FoundationDB, without waits for read versions; divided by skein_store_read_version_duration_seconds_count, the round trips of a query. Empty with the embedded engine.",
		}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_store_retries_total", Help: "Retried writes, by cause.",
		}, []string{"cause"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_store_conflicts_total", Help: "Key ranges that another writer changed before a commit, as the engine reports them, by keyspace.",
		}, []string{"keyspace"}),
		keyspaceOf: keyspaceOf,
	}
	reg.MustRegister(m.commit, m.version, m.trips, m.retries, m.conflicts)
	return m
}

// Committed counts a write and its duration.
func (m *Metrics) Committed(took time.Duration) {
	if m != nil {
		m.commit.Observe(took.Seconds())
	}
}

// Viewed counts a query: how long it waited for its read version, and its round trips.
func (m *Metrics) Viewed(waited time.Duration, trips int) {
	if m != nil {
		m.version.Observe(waited.Seconds())
		m.trips.Add(float64(trips))
	}
}

// Retried counts a retry of a write.
func (m *Metrics) Retried(cause string) {
	if m != nil {
		m.retries.WithLabelValues(cause).Inc()
	}
}

// Conflicted counts a conflict on the range that begins with key.
func (m *Metrics) Conflicted(key []byte) {
	if m != nil {
		m.conflicts.WithLabelValues(m.keyspaceOf(key)).Inc()
	}
}
