package intern

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/intern/dict"
)

// Metrics are the metrics of this package. A nil *Metrics counts nothing.
type Metrics struct {
	Allocated *prometheus.CounterVec // namespace
	Lookups   *prometheus.CounterVec // namespace, result
	Leases    *prometheus.CounterVec // namespace
	Waits     *prometheus.CounterVec // namespace
	Retries   *prometheus.CounterVec // namespace
	Remaining *prometheus.GaugeVec   // namespace
	lookups   [len(dict.Namespaces) + 1][3]prometheus.Counter
	made      [len(dict.Namespaces) + 1]prometheus.Counter

	mu   sync.Mutex // guards the fields below
	left [len(dict.Namespaces) + 1][dict.MaxPartitions]int
	sum  [len(dict.Namespaces) + 1]int
}

const (
	lookupCache = iota
	lookupStore
	lookupNew
)

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skein_intern_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		Allocated: counter("ids_allocated_total", "Ids given to new strings.", "namespace"),
		Lookups:   counter("lookups_total", "Strings looked up while indexing, by where they were found: cache, store, new.", "namespace", "result"),
		Leases:    counter("leases_total", "Blocks of ids leased from a shard.", "namespace"),
		Waits:     counter("lease_waits_total", "Times that indexing waited for a lease of ids.", "namespace"),
		Retries:   counter("lease_retries_total", "Times that a lease was retried because another writer took the same block.", "namespace"),
	}
	m.Remaining = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "skein_intern_lease_ids_remaining", Help: "Leased ids not yet handed out."}, []string{"namespace"})
	reg.MustRegister(m.Remaining)
	for _, ns := range dict.Namespaces {
		m.made[ns] = m.Allocated.WithLabelValues(ns.String())
		for i, result := range []string{"cache", "store", "new"} {
			m.lookups[ns][i] = m.Lookups.WithLabelValues(ns.String(), result)
		}
	}
	return m
}

func (m *Metrics) lookup(ns dict.Namespace, result int) {
	if m != nil {
		m.lookups[ns][result].Inc()
	}
}

func (m *Metrics) allocated(ns dict.Namespace, n int) {
	if m != nil && n > 0 {
		m.made[ns].Add(float64(n))
	}
}

func (m *Metrics) leased(ns dict.Namespace) {
	if m != nil {
		m.Leases.WithLabelValues(ns.String()).Inc()
	}
}

func (m *Metrics) waited(ns dict.Namespace) {
	if m != nil {
		m.Waits.WithLabelValues(ns.String()).Inc()
	}
}

// retried counts conflicts with other writers on a shard.
func (m *Metrics) retried(ns dict.Namespace, n int) {
	if m != nil {
		m.Retries.WithLabelValues(ns.String()).Add(float64(n))
	}
}

// remaining sets the number of leased ids that a partition has left. The metric is the sum of
// all partitions.
func (m *Metrics) remaining(ns dict.Namespace, part uint8, n int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum[ns] += n - m.left[ns][part]
	m.left[ns][part] = n
	m.Remaining.WithLabelValues(ns.String()).Set(float64(m.sum[ns]))
}
