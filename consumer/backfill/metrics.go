package backfill

import (
	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer/wire"
)

// Metrics are the metrics of this package.
type Metrics struct {
	Repos   *prometheus.CounterVec // by outcome
	Failed  *prometheus.CounterVec // by reason
	Bytes   prometheus.Counter
	Seconds prometheus.Histogram
	Dropped *prometheus.CounterVec // by reason

	Audited         *prometheus.CounterVec // by outcome
	AuditedRecords  prometheus.Counter
	AuditDifference prometheus.Counter
	AuditedAt       prometheus.Gauge
}

// NewMetrics creates and registers the metrics. Every scrape calls status.
func NewMetrics(reg prometheus.Registerer, status func() Status) *Metrics {
	m := &Metrics{
		Repos: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_repos_total", Help: "Repos fetched whole, by outcome.",
		}, []string{"outcome"}),
		Failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_failures_total", Help: "Failed attempts to fetch a repo, by reason.",
		}, []string{"reason"}),
		Bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "skein_backfill_bytes_total", Help: "Bytes of fetched repos."}),
		Seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_backfill_fetch_seconds", Help: "Time to fetch a repo.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}),
		Dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_dropped_total", Help: "Dropped input, by reason: malformed data in archives, and subjects in spaces (not indexed) in archives and repos.",
		}, []string{"reason"}),
		Audited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_audit_repos_total", Help: "Random repos fetched to be compared with the index (--audit), by outcome: same, different, unfetched, or moved_on (never at the same rev).",
		}, []string{"outcome"}),
		AuditedRecords: prometheus.NewCounter(prometheus.CounterOpts{Name: "skein_audit_records_total", Help: "Records compared with their hosts."}),
		AuditDifference: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_audit_differences_total", Help: "Records that the index and their hosts did not have alike at the same rev.",
		}),
	}
	m.AuditedAt = prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_audit_last_timestamp_seconds", Help: "Time of this process's last comparison of a repo with its host; 0: none."})
	for _, outcome := range []string{auditSame, auditDifferent, auditUnfetched, auditMoved} {
		m.Audited.WithLabelValues(outcome)
	}
	reg.MustRegister(m.Repos, m.Failed, m.Bytes, m.Seconds, m.Dropped, m.Audited, m.AuditedRecords, m.AuditDifference, m.AuditedAt)
	gauge := func(name, help string, of func(Status) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(status()) }))
	}
	gauge("skein_backfill_waiting_repos", "Repos queued for a fetch.", func(s Status) float64 { return float64(s.Waiting) })
	gauge("skein_backfill_inactive_repos", "Repos whose host reports that the account is inactive.", func(s Status) float64 { return float64(s.Inactive) })
	gauge("skein_backfill_complete_repos", "Repos whose records are all in the index, as far as known.", func(s Status) float64 { return float64(s.Complete) })
	gauge("skein_backfill_coverage_ratio", "Share of the accounts in the index whose records are all in it, as far as known; 0 without accounts.", func(s Status) float64 { return float64(s.Complete) / float64(max(s.Accounts, 1)) })
	gauge("skein_backfill_compared_timestamp_seconds", "Time at which all repos had been compared with the relay's list; 0: never.", func(s Status) float64 {
		if s.Compared.IsZero() {
			return 0
		}
		return float64(s.Compared.UnixMilli()) / 1e3
	})
	gauge("skein_backfill_archive_seq", "Sequence number up to which the archive has been read.", func(s Status) float64 { return float64(s.ArchiveSeq) })
	gauge("skein_backfill_archive_tip_seq", "Last sequence number of the archive.", func(s Status) float64 { return float64(s.ArchiveTip) })
	reg.MustRegister(&failedRepos{status, prometheus.NewDesc("skein_backfill_failed_repos", "Repos given up, by reason.", []string{"reason"}, nil)})
	return m
}

// failedRepos collects the numbers of repos that were given up.
type failedRepos struct {
	status func() Status
	desc   *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (f *failedRepos) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect implements prometheus.Collector.
func (f *failedRepos) Collect(ch chan<- prometheus.Metric) {
	failed := f.status().Failed
	for _, reason := range failures { // also those at 0: an alert sees only a rise that it sees begin
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(failed[reason]), reason)
	}
}

func (m *Metrics) audited(outcome string, records, differences int) {
	m.Audited.WithLabelValues(outcome).Inc()
	m.AuditedRecords.Add(float64(records))
	m.AuditDifference.Add(float64(differences))
	if outcome == auditSame || outcome == auditDifferent {
		m.AuditedAt.SetToCurrentTime()
	}
}

// dropped counts dropped records.
func (m *Metrics) dropped(reason wire.Reason, n int) {
	m.Dropped.WithLabelValues(string(reason)).Add(float64(n))
}
