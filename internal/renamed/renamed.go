// Package renamed serves a Prometheus metric under its former name as well, for one release, so
// that dashboards and alerts keep working while their owners change them. It keeps no values: at
// each scrape the old name reads the new metric, so an event costs no more than with one name.
package renamed

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c, a metric named now with these variable labels, in reg, and again under
// its former name, before.
func Register(reg prometheus.Registerer, c prometheus.Collector, before, now string, labels ...string) {
	help := fmt.Sprintf("Deprecated: renamed to %s. The next release no longer serves this name.", now)
	reg.MustRegister(c, &alias{c, prometheus.NewDesc(before, help, labels, nil)})
}

// alias collects another collector's metrics under another name.
type alias struct {
	of   prometheus.Collector
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (a *alias) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements prometheus.Collector.
func (a *alias) Collect(ch chan<- prometheus.Metric) {
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		a.of.Collect(metrics)
	}()
	for m := range metrics {
		ch <- metric{m, a.desc}
	}
}

// metric is a metric with another description and the same labels and value.
type metric struct {
	prometheus.Metric

	desc *prometheus.Desc
}

// Desc implements prometheus.Metric.
func (m metric) Desc() *prometheus.Desc { return m.desc }
