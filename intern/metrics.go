package intern

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of this package. A nil *Metrics counts nothing.
type Metrics struct {
	Leases prometheus.Counter
	Waits  prometheus.Counter
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Leases: prometheus.NewCounter(prometheus.CounterOpts{Name: "skein_intern_leases_total", Help: "Blocks of ids leased."}),
		Waits:  prometheus.NewCounter(prometheus.CounterOpts{Name: "skein_intern_lease_waits_total", Help: "Times that indexing waited for a lease of ids."}),
	}
	reg.MustRegister(m.Leases, m.Waits)
	return m
}

func (m *Metrics) leased() {
	if m != nil {
		m.Leases.Inc()
	}
}

func (m *Metrics) waited() {
	if m != nil {
		m.Waits.Inc()
	}
}
