package backfill

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
)

// Metrics are those of the package. A nil *Metrics counts nothing.
type Metrics struct {
	Repos   *prometheus.CounterVec // by outcome
	Failed  *prometheus.CounterVec // by reason
	Bytes   prometheus.Counter
	Seconds prometheus.Histogram
	Dropped *prometheus.CounterVec // by reason
}

// NewMetrics makes and registers the metrics. status is asked at every scrape.
func NewMetrics(reg prometheus.Registerer, status func() Status) *Metrics {
	m := &Metrics{
		Repos: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_repos_total", Help: "Repos that were fetched whole, by what became of them.",
		}, []string{"outcome"}),
		Failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_failures_total", Help: "Tries to fetch a repo that failed, by reason.",
		}, []string{"reason"}),
		Bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "skein_backfill_bytes_total", Help: "Bytes of repos that were fetched."}),
		Seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_backfill_fetch_seconds", Help: "How long fetching a repo took.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}),
		Dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_dropped_total", Help: "What was dropped, by reason: of archives what was malformed, and of archives and repos subjects in spaces, which are not indexed.",
		}, []string{"reason"}),
	}
	reg.MustRegister(m.Repos, m.Failed, m.Bytes, m.Seconds, m.Dropped)
	gauge := func(name, help string, of func(Status) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(status()) }))
	}
	gauge("skein_backfill_waiting_repos", "Repos that are queued to be fetched whole.", func(s Status) float64 { return float64(s.Waiting) })
	gauge("skein_backfill_inactive_repos", "Repos whose host says that the account is not active.", func(s Status) float64 { return float64(s.Inactive) })
	gauge("skein_backfill_complete_repos", "Repos whose records are all in the index, as far as is known.", func(s Status) float64 { return float64(s.Complete) })
	gauge("skein_backfill_archive_seq", "How far the archive has been read.", func(s Status) float64 { return float64(s.ArchiveSeq) })
	gauge("skein_backfill_archive_tip_seq", "How far the archive goes.", func(s Status) float64 { return float64(s.ArchiveTip) })
	reg.MustRegister(&failedRepos{status, prometheus.NewDesc("skein_backfill_failed_repos", "Repos that were given up, by reason.", []string{"reason"}, nil)})
	return m
}

// failedRepos collects the repos that were given up.
type failedRepos struct {
	status func() Status
	desc   *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (f *failedRepos) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect implements prometheus.Collector.
func (f *failedRepos) Collect(ch chan<- prometheus.Metric) {
	for reason, n := range f.status().Failed {
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(n), reason)
	}
}

func (m *Metrics) outcome(o batch.Outcome) {
	if m != nil {
		m.Repos.WithLabelValues(o.String()).Inc()
	}
}

func (m *Metrics) failed(reason string) {
	if m != nil {
		m.Failed.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) fetched(bytes int64, took time.Duration) {
	if m != nil {
		m.Bytes.Add(float64(bytes))
		m.Seconds.Observe(took.Seconds())
	}
}

// spaces counts the records of a repo whose subject is in a space.
func (m *Metrics) spaces(n int) {
	if m != nil && n > 0 {
		m.Dropped.WithLabelValues(string(wire.SpaceSubject)).Add(float64(n))
	}
}

func (m *Metrics) dropped(reason string) {
	if m != nil {
		m.Dropped.WithLabelValues(reason).Inc()
	}
}
