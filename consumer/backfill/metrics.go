package backfill

import (
	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer/wire"
)

// Metrics are the metrics of this package.
type Metrics struct {
	Repos   *prometheus.CounterVec // by outcome
	Failed  *prometheus.CounterVec // by reason
	Dropped *prometheus.CounterVec // by reason

	Audited         *prometheus.CounterVec // by outcome
	AuditDifference prometheus.Counter
}

// NewMetrics creates and registers the metrics. Every scrape calls status.
func NewMetrics(reg prometheus.Registerer, status func() Status) *Metrics {
	m := &Metrics{
		Repos: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_repos_total", Help: "Repos that were fetched whole, by outcome, and those given up.",
		}, []string{"outcome"}),
		Failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_failures_total", Help: "Failed attempts to fetch a repo, by reason.",
		}, []string{"reason"}),
		Dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_backfill_dropped_total", Help: "Dropped input, by reason: malformed data in archives, and subjects in spaces (not indexed) in archives and repos.",
		}, []string{"reason"}),
		Audited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_audit_repos_total", Help: "Random repos fetched to be compared with the index (--audit), by outcome: same, different, unfetched, or moved_on (never at the same rev).",
		}, []string{"outcome"}),
		AuditDifference: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_audit_differences_total", Help: "Records that the index and their hosts did not have alike at the same rev.",
		}),
	}
	for _, outcome := range []string{auditSame, auditDifferent, auditUnfetched, auditMoved} {
		m.Audited.WithLabelValues(outcome)
	}
	m.Repos.WithLabelValues(givenUp) // an alert sees only a rise that it sees begin
	reg.MustRegister(m.Repos, m.Failed, m.Dropped, m.Audited, m.AuditDifference)
	gauge := func(name, help string, of func(Status) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(status()) }))
	}
	gauge("skein_backfill_waiting_repos", "Repos queued for a fetch.", func(s Status) float64 { return float64(s.Waiting) })
	gauge("skein_backfill_coverage_ratio", "Share of the accounts in the index whose records are all in it, as far as known; 0 without accounts.", func(s Status) float64 { return float64(s.Complete) / float64(max(s.Accounts, 1)) })
	for _, reason := range failures {
		o := prometheus.GaugeOpts{Name: "skein_backfill_failed_repos", Help: "Repos given up, by reason.", ConstLabels: prometheus.Labels{"reason": reason}}
		reg.MustRegister(prometheus.NewGaugeFunc(o, func() float64 { return float64(status().Failed[reason]) }))
	}
	return m
}

func (m *Metrics) audited(outcome string, differences int) {
	m.Audited.WithLabelValues(outcome).Inc()
	m.AuditDifference.Add(float64(differences))
}

// dropped counts dropped records.
func (m *Metrics) dropped(reason wire.Reason, n int) {
	m.Dropped.WithLabelValues(string(reason)).Add(float64(n))
}
