package consumer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein/consumer/wire"
	"skein/graph"
)

// Reasons for drops and gaps besides those of package wire.
const (
	oldSeq      wire.Reason = "old_seq"      // an event that came before
	seqJump     wire.Reason = "seq_jump"     // an event whose seq was implausible, and refuted by the next
	tooLarge    wire.Reason = "too_large"    // a message over frames.MaxFrame
	textMessage wire.Reason = "text_message" // a websocket message that is not binary
)

// Metrics of this package. A nil *Metrics counts nothing.
type Metrics struct {
	Events     *prometheus.CounterVec // type
	Ops        *prometheus.CounterVec // collection, action
	Dropped    *prometheus.CounterVec // reason
	Cursor     prometheus.Gauge
	Reconnects prometheus.Counter
	Gaps       prometheus.Counter
	Connected  prometheus.Gauge
	Jumps      prometheus.Counter
	Queryable  prometheus.Histogram

	events [wire.Types]prometheus.Counter
}

// NewMetrics registers the metrics of this package. lag, in seconds, is asked
// for at every scrape.
func NewMetrics(reg prometheus.Registerer, lag func() float64) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skein_consumer_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		Events:  counter("events_total", "Messages read, by type.", "type"),
		Ops:     counter("ops_total", "Operations on records of indexed collections.", "collection", "action"),
		Dropped: counter("dropped_total", "Input dropped, by reason.", "reason"),
		Cursor: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_consumer_cursor", Help: "The last sequence number that is committed.",
		}),
		Reconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_consumer_reconnects_total", Help: "Connections to the relay after the first.",
		}),
		Gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_consumer_gaps_total", Help: "Places in the stream where something may be missing.",
		}),
		Connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_consumer_connected", Help: "1 while a connection to the relay stands.",
		}),
		Jumps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_consumer_seq_jumps_total", Help: "Places where the relay's numbering jumped by a million or more, and the next event agreed.",
		}),
		Queryable: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_consumer_queryable_seconds", Help: "Time from a message's arrival until a query sees it; of a sample of the messages.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
	}
	reg.MustRegister(m.Cursor, m.Reconnects, m.Gaps, m.Connected, m.Jumps, m.Queryable,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_consumer_lag_seconds", Help: "Age of the last event committed, 0 before the first.",
		}, lag))
	for t := range m.events {
		m.events[t] = m.Events.WithLabelValues(wire.Type(t).String())
	}
	for _, r := range append([]wire.Reason{oldSeq, seqJump, tooLarge, textMessage}, wire.Reasons...) {
		m.Dropped.WithLabelValues(string(r))
	}
	return m
}

func (m *Metrics) event(t wire.Type) {
	if m != nil {
		m.events[t].Inc()
	}
}

func (m *Metrics) drop(r wire.Reason) {
	if m != nil {
		m.Dropped.WithLabelValues(string(r)).Inc()
	}
}

func (m *Metrics) gap(r wire.Reason) {
	if m != nil {
		m.Gaps.Inc()
		if r != "outdated_cursor" {
			m.Dropped.WithLabelValues(string(r)).Inc()
		}
	}
}

func (m *Metrics) jump() {
	if m != nil {
		m.Jumps.Inc()
	}
}

func (m *Metrics) queryable(after time.Duration) {
	if m != nil {
		m.Queryable.Observe(after.Seconds())
	}
}

func (m *Metrics) cursor(seq int64) {
	if m != nil {
		m.Cursor.Set(float64(seq))
	}
}

func (m *Metrics) connected(yes bool) {
	if m == nil {
		return
	}
	if yes {
		m.Connected.Set(1)
	} else {
		m.Connected.Set(0)
	}
}

// ops brings the metrics up to what the decoder has counted.
func (m *Metrics) ops(now, counted *wire.Counts) {
	if m == nil {
		return
	}
	for action := range now {
		for _, k := range graph.Kinds {
			if n := now[action][k.Kind] - counted[action][k.Kind]; n > 0 {
				m.Ops.WithLabelValues(k.Collection, wire.ActionName(action)).Add(float64(n))
			}
		}
	}
	*counted = *now
}
