package pebblekv

import (
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// stalls adds up for how long Pebble held writes up, because it had too much left to compact or to
// flush.
type stalls struct {
	mu    sync.Mutex // guards the fields below
	begun time.Time  // of the present one; zero if there is none
	took  time.Duration
}

func (s *stalls) begin(pebble.WriteStallBeginInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = time.Now()
}

func (s *stalls) end() {
	took := s.sum()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took, s.begun = took, time.Time{}
}

// sum returns the duration so far.
func (s *stalls) sum() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		return s.took
	}
	return s.took + time.Since(s.begun)
}

// collector reads Pebble's own metrics at each scrape.
type collector struct{ s *Store }

// Collector returns the metrics of the engine.
func (s *Store) Collector() prometheus.Collector { return collector{s} }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. A closed store has no metrics.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	if !c.s.gate.enter() {
		return
	}
	m := c.s.db.Metrics()
	c.s.gate.leave()
	send := func(kind prometheus.ValueType, name, help string, v float64, labels prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("skein_store_"+name, help, nil, labels), kind, v)
	}
	for i := range m.Levels {
		l, level := &m.Levels[i], prometheus.Labels{"level": strconv.Itoa(i)}
		send(prometheus.GaugeValue, "level_bytes", "Bytes of tables, by level of the LSM tree; level 0 grows if compactions do not keep up.", float64(l.TablesSize), level)
	}
	send(prometheus.GaugeValue, "read_amplification", "Tables that a read of one key may have to look at.", float64(m.ReadAmp()), nil)
	send(prometheus.GaugeValue, "compaction_debt_bytes", "Bytes that compactions must still rewrite.", float64(m.Compact.EstimatedDebt), nil)
	const reads = "Blocks read, by where they were found: cache or disk."
	send(prometheus.CounterValue, "cache_reads_total", reads, float64(m.BlockCache.Hits), prometheus.Labels{"result": "cache"})
	send(prometheus.CounterValue, "cache_reads_total", reads, float64(m.BlockCache.Misses), prometheus.Labels{"result": "disk"})
	send(prometheus.CounterValue, "write_stall_seconds_total", "Time for which the engine held writes up.", c.s.stalls.sum().Seconds(), nil)
}
