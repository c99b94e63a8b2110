package labels

import (
	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph"
)

// Metrics of this package.
type Metrics struct {
	Dropped   *prometheus.CounterVec // labeler, reason
	Connected *prometheus.GaugeVec   // labeler
	Current   *prometheus.GaugeVec   // labeler
	Seq       *prometheus.GaugeVec   // labeler
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_labels_dropped_total", Help: "Labels that were dropped, by reason: frame (an unreadable message, counted once), label (an unreadable label), signature (missing or wrong), source (not this labeler), subject (neither a DID nor an AT URI), value (invalid), version (unknown ver of the label format), cid (invalid) or time (invalid).",
		}, []string{"labeler", "reason"}),
		Connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skein_labeler_connected", Help: "1 while the labeler is connected, else 0.",
		}, []string{"labeler"}),
		Current: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skein_labeler_current", Help: "1 if the labeler can be read and all its labels are indexed, else 0.",
		}, []string{"labeler"}),
		Seq: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skein_labeler_cursor", Help: "Sequence number of the last message of the labeler that was written.",
		}, []string{"labeler"}),
	}
	reg.MustRegister(m.Dropped, m.Connected, m.Current, m.Seq)
	return m
}

func (m *Metrics) connected(labeler string, yes bool) {
	m.Connected.WithLabelValues(labeler).Set(map[bool]float64{true: 1}[yes])
}

func (m *Metrics) state(l *graph.Labeler) {
	m.Current.WithLabelValues(l.Name).Set(map[bool]float64{true: 1}[l.Current])
	m.Seq.WithLabelValues(l.Name).Set(float64(l.Seq))
}
