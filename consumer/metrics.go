package consumer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer/wire"
)

// Reasons for drops and gaps besides those of package wire.
const (
	oldSeq      wire.Reason = "old_seq"      // an event that was seen before
	seqJump     wire.Reason = "seq_jump"     // an event with an implausible seq that the next events refuted
	tooLarge    wire.Reason = "too_large"    // a message over wire.MaxFrame
	textMessage wire.Reason = "text_message" // a websocket message that is not binary
)

// Metrics of this package.
type Metrics struct {
	Events     *prometheus.CounterVec // type
	Dropped    *prometheus.CounterVec // reason
	Reconnects prometheus.Counter
	Gaps       prometheus.Counter
	Connected  prometheus.Gauge
	Jumps      prometheus.Counter
	OtherRevs  prometheus.Counter
	Queryable  prometheus.Histogram

	events [wire.Types]prometheus.Counter
}

// NewMetrics registers the metrics of this package. Every scrape calls status,
// unless it is nil.
func NewMetrics(reg prometheus.Registerer, status func() Status) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skein_consumer_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		Events:     counter("events_total", "Messages read, by type.", "type"),
		Dropped:    counter("dropped_total", "Input dropped, by reason.", "reason"),
		Reconnects: counter("reconnects_total", "Connections to the relay after the first.").WithLabelValues(),
		Gaps:       counter("gaps_total", "Places in the stream where events may be missing.").WithLabelValues(),
		Jumps:      counter("seq_jumps_total", "Jumps of the relay's numbering by a million or more that later events confirmed.").WithLabelValues(),
		OtherRevs:  counter("other_revs_total", "Messages whose rev differs from that of their commit block, as after the import of a repo. They are applied anyway.").WithLabelValues(),
		Connected:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_consumer_connected", Help: "1 while connected to the relay."}),
		Queryable: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_consumer_queryable_seconds", Help: "Time from a message's arrival until queries see it, for a sample of the messages.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
	}
	reg.MustRegister(m.Connected, m.Queryable)
	if status != nil {
		reg.MustRegister(statusCollector(status))
	}
	for t := range m.events {
		m.events[t] = m.Events.WithLabelValues(wire.Type(t).String())
	}
	for _, r := range append([]wire.Reason{oldSeq, seqJump, tooLarge, textMessage}, wire.Reasons...) {
		m.Dropped.WithLabelValues(string(r))
	}
	return m
}

func (m *Metrics) drop(r wire.Reason) { m.Dropped.WithLabelValues(string(r)).Inc() }

// statusCollector turns a Status into metrics. It leaves out values that are not
// known yet.
type statusCollector func() Status

// Describe implements prometheus.Collector: which metrics there are depends on the Status.
func (statusCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (status statusCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, v float64, labels prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("skein_consumer_"+name, help, nil, labels), prometheus.GaugeValue, v)
	}
	s := status()
	if s.HasLag {
		gauge("lag_seconds", "Age of the last committed event; on an idle stream without backlog, time since the relay last showed a sign of life. Absent before the first event.", s.Lag.Round(time.Millisecond).Seconds(), nil)
		gauge("last_event_timestamp_seconds", "Time of the last committed event, in Unix seconds. Absent before the first event.", float64(s.Newest.UnixMilli())/1000, nil)
	}
	if s.Cursor > 0 {
		gauge("cursor", "Sequence number of the last committed event. Absent before the first event.", float64(s.Cursor), nil)
	}
	for _, state := range States {
		v := 0.0
		if state == s.State {
			v = 1
		}
		gauge("state", "1 for the current state of the consumer, 0 for the others.", v, prometheus.Labels{"state": string(state)})
	}
}
