package graph

import "github.com/prometheus/client_golang/prometheus"

// Metrics are this package's metrics, skein_graph_*. A nil *Metrics counts nothing. Help texts
// say what each is.
type Metrics struct {
	Edges *prometheus.CounterVec // by kind and action
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Edges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_edge_writes_total", Help: "Edges added (add) and removed (remove). Adding an edge again counts again.",
		}, []string{"kind", "action"}),
	}
	reg.MustRegister(m.Edges)
	return m
}

// countIncomplete updates what Incomplete returns, after a commit.
func (s *core) countIncomplete() {
	var desynchronized, partial int64
	for _, l := range s.lanes {
		desynchronized += l.counts.Desynchronized + l.others.Desynchronized
		partial += l.counts.Partial + l.others.Partial
	}
	s.desynchronized.Store(desynchronized)
	s.partial.Store(partial)
}

// Incomplete returns this process's share of the number of repos with missed events, and of those whose past is unknown. Counts
// do not move with partitions: a share may be below 0, and only the sum of all writers' counts.
func (s *core) Incomplete() (desynchronized, partial int64) {
	return s.desynchronized.Load(), s.partial.Load()
}
