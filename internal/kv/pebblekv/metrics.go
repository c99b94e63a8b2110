package pebblekv

import (
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// stalls counts the times that Pebble held writes up, because it had too much left to compact or
// to flush.
type stalls struct {
	mu    sync.Mutex
	begun time.Time // of the present one; zero if there is none
	n     int64
	took  time.Duration
}

func (s *stalls) begin(pebble.WriteStallBeginInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.begun = time.Now()
}

func (s *stalls) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun.IsZero() {
		s.took += time.Since(s.begun)
	}
	s.begun = time.Time{}
}

// sum returns the number of stalls and their duration so far.
func (s *stalls) sum() (n int64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took = s.took
	if !s.begun.IsZero() {
		took += time.Since(s.begun)
	}
	return s.n, took
}

// collector reads Pebble's own metrics at each scrape.
type collector struct {
	s *Store

	levelBytes, levelTables, written                    *prometheus.Desc // level
	readAmp, debt, running, compactions, flushes        *prometheus.Desc
	cacheBytes, cacheReads, memtable, wal, stalls, held *prometheus.Desc
}

// Collector returns the metrics of the engine.
func (s *Store) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("skein_store_"+name, help, labels, nil)
	}
	return &collector{
		s:           s,
		levelBytes:  desc("level_bytes", "Bytes of tables, by level of the LSM tree; level 0 grows if compactions do not keep up.", "level"),
		levelTables: desc("level_tables", "Tables, by level of the LSM tree.", "level"),
		written:     desc("level_written_bytes_total", "Bytes that flushes and compactions wrote, by level. Compared with what arrives, they are the write amplification.", "level"),
		readAmp:     desc("read_amplification", "Tables that a read of one key may have to look at."),
		debt:        desc("compaction_debt_bytes", "Bytes that compactions must still rewrite."),
		running:     desc("compactions_in_progress", "Running compactions."),
		compactions: desc("compactions_total", "Compactions."),
		flushes:     desc("flushes_total", "Flushes of memtables to tables."),
		cacheBytes:  desc("cache_bytes", "Bytes of blocks in the engine's cache."),
		cacheReads:  desc("cache_reads_total", "Blocks read, by where they were found: cache or disk.", "result"),
		memtable:    desc("memtable_bytes", "Bytes of memtables."),
		wal:         desc("wal_bytes", "Bytes of write-ahead logs in use."),
		stalls:      desc("write_stalls_total", "Times that the engine held writes up until compactions or flushes had caught up."),
		held:        desc("write_stall_seconds_total", "Time for which the engine held writes up."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.levelBytes, c.levelTables, c.written, c.readAmp, c.debt, c.running, c.compactions, c.flushes, c.cacheBytes, c.cacheReads, c.memtable, c.wal, c.stalls, c.held,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A closed store has no metrics.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	if !c.s.gate.enter() {
		return
	}
	m := c.s.db.Metrics()
	c.s.gate.leave()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for i := range m.Levels {
		l, name := &m.Levels[i], strconv.Itoa(i)
		gauge(c.levelBytes, float64(l.TablesSize), name)
		gauge(c.levelTables, float64(l.TablesCount), name)
		counter(c.written, float64(l.TableBytesFlushed+l.TableBytesCompacted), name)
	}
	gauge(c.readAmp, float64(m.ReadAmp()))
	gauge(c.debt, float64(m.Compact.EstimatedDebt))
	gauge(c.running, float64(m.Compact.NumInProgress))
	counter(c.compactions, float64(m.Compact.Count))
	counter(c.flushes, float64(m.Flush.Count))
	gauge(c.cacheBytes, float64(m.BlockCache.Size))
	counter(c.cacheReads, float64(m.BlockCache.Hits), "cache")
	counter(c.cacheReads, float64(m.BlockCache.Misses), "disk")
	gauge(c.memtable, float64(m.MemTable.Size))
	gauge(c.wal, float64(m.WAL.Size))
	n, took := c.s.stalls.sum()
	counter(c.stalls, float64(n))
	counter(c.held, took.Seconds())
}
