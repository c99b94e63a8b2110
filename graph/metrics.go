package graph

import (
	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/internal/renamed"
)

// Metrics of this package, skein_graph_*. A nil *Metrics counts nothing.
type Metrics struct {
	Edges   *prometheus.CounterVec // kind, action
	Replays prometheus.Counter
	Spills  prometheus.Counter
	Sets    *prometheus.CounterVec // result
	Erasing prometheus.Gauge
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Edges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_edge_writes_total", Help: "Edges added (add; writing an edge again counts again) and removed (remove).",
		}, []string{"kind", "action"}),
		Replays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_graph_replays_total", Help: "Events dropped because they had been applied before.",
		}),
		Spills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_graph_spills_total", Help: "Rows and chunks that had grown too large and were spilled.",
		}),
		Sets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_large_sets_total", Help: "Large sets asked for, by what it took: cache (decoded already), load (read whole), probe (read in part).",
		}, []string{"result"}),
		Erasing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_graph_erasing_accounts", Help: "Deleted accounts whose records are still being erased.",
		}),
	}
	renamed.Register(reg, m.Edges, "skein_graph_edges_total", "skein_graph_edge_writes_total", "kind", "action")
	reg.MustRegister(m.Replays, m.Spills, m.Sets, m.Erasing)
	return m
}

// gauges tells what the store holds now, as of the last commit.
func (s *Store) gauges() {
	var desynchronized, partial, doubtful, erasing int64
	for _, l := range s.lanes {
		desynchronized += l.counts.Desynchronized + l.others.Desynchronized
		partial += l.counts.Partial + l.others.Partial
		doubtful += l.counts.Incomplete + l.others.Incomplete
		erasing += int64(len(l.erasing))
	}
	s.desynchronized.Store(desynchronized)
	s.partial.Store(partial)
	s.doubtful.Store(doubtful)
	if m := s.o.Metrics; m != nil {
		m.Erasing.Set(float64(erasing))
	}
}

// Incomplete returns of how many repos that are written here something was missed, and of
// how many the past was never seen. Any goroutine may call it.
func (s *Store) Incomplete() (desynchronized, partial int64) {
	return s.desynchronized.Load(), s.partial.Load()
}

// Doubtful returns of how many active accounts that are written here something is known to be
// missing, or in doubt: answers about everybody may lack it. Any goroutine may call it.
func (s *Store) Doubtful() int64 { return s.doubtful.Load() }
