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

var (
	lagDesc = prometheus.NewDesc("skein_consumer_lag_seconds",
		"Age of the last committed event; on an idle stream without backlog, time since the relay last showed a sign of life. Absent before the first event.", nil, nil)
	cursorDesc = prometheus.NewDesc("skein_consumer_cursor", "Sequence number of the last committed event. Absent before the first event.", nil, nil)
	newestDesc = prometheus.NewDesc("skein_consumer_last_event_timestamp_seconds", "Time of the last committed event, in Unix seconds. Absent before the first event.", nil, nil)
	stateDesc  = prometheus.NewDesc("skein_consumer_state", "1 for the current state of the consumer, 0 for the others.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (statusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, cursorDesc, newestDesc, stateDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (status statusCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := status()
	if s.HasLag {
		gauge(lagDesc, s.Lag.Round(time.Millisecond).Seconds())
		gauge(newestDesc, float64(s.Newest.UnixMilli())/1000)
	}
	if s.Cursor > 0 {
		gauge(cursorDesc, float64(s.Cursor))
	}
	for _, state := range States {
		v := 0.0
		if state == s.State {
			v = 1
		}
		gauge(stateDesc, v, string(state))
	}
}
