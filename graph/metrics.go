package graph

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein/graph/format"
)

// Metrics of this package. A nil *Metrics counts nothing.
type Metrics struct {
	Edges  *prometheus.CounterVec // kind, action
	Commit prometheus.Histogram
	// Retries are attempts that were made again, by cause.
	Retries *prometheus.CounterVec
	// Conflicts are what commits conflicted on, by keyspace.
	Conflicts      *prometheus.CounterVec
	Replays        prometheus.Counter
	Spills         prometheus.Counter
	Sets           *prometheus.CounterVec // result
	Desynchronized prometheus.Gauge
	Partial        prometheus.Gauge
	Erasing        prometheus.Gauge
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Edges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_edges_total", Help: "Edges written (add; an edge that is there already may be written again) and removed (remove).",
		}, []string{"kind", "action"}),
		Commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_store_commit_seconds", Help: "Time of one atomic write, reads included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		Retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_store_retries_total", Help: "Writes tried again, by cause.",
		}, []string{"cause"}),
		Conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_store_conflicts_total", Help: "Key ranges that another writer had changed when a commit was tried, as the engine reports them, by keyspace.",
		}, []string{"keyspace"}),
		Replays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_graph_replays_total", Help: "Events dropped because they had been applied before.",
		}),
		Spills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_graph_spills_total", Help: "Rows and chunks that had grown too large and were spilled.",
		}),
		Sets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_large_sets_total", Help: "Large sets asked for, by what it took: cache (decoded already), load (read whole), probe (read in part).",
		}, []string{"result"}),
		Desynchronized: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_consumer_desynchronized_repos", Help: "Repos of which something was missed.",
		}),
		Partial: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_consumer_partial_repos", Help: "Repos whose past was never seen.",
		}),
		Erasing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_graph_erasing_accounts", Help: "Deleted accounts whose records are still being erased.",
		}),
	}
	reg.MustRegister(m.Edges, m.Commit, m.Retries, m.Conflicts, m.Replays, m.Spills, m.Sets, m.Desynchronized, m.Partial, m.Erasing)
	return m
}

// Retried counts an attempt that the engine makes again.
func (m *Metrics) Retried(cause string) { m.retry(cause) }

// Conflicted counts a conflict that the engine reports, by its first key.
func (m *Metrics) Conflicted(key []byte) {
	if m != nil {
		m.Conflicts.WithLabelValues(format.KeyspaceOf(key)).Inc()
	}
}

func (m *Metrics) retry(cause string) {
	if m != nil {
		m.Retries.WithLabelValues(cause).Inc()
	}
}

// committed counts a write and how long it took.
func (m *Metrics) committed(took time.Duration) {
	if m != nil {
		m.Commit.Observe(took.Seconds())
	}
}

// gauges tells the metrics what the store holds now.
func (s *Store) gauges() {
	if m := s.o.Metrics; m != nil && len(s.lanes) > 0 {
		var desynchronized, partial, erasing int64
		for _, l := range s.lanes {
			desynchronized += l.counts.Desynchronized + l.others.Desynchronized
			partial += l.counts.Partial + l.others.Partial
			erasing += int64(len(l.erasing))
		}
		m.Desynchronized.Set(float64(desynchronized))
		m.Partial.Set(float64(partial))
		m.Erasing.Set(float64(erasing))
	}
}
