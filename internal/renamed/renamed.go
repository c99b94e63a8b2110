// Package renamed serves a Prometheus metric under the name that it had before, for one
// release, so that dashboards and alerts keep working while their owners change them. It
// keeps no values of its own: the old name reads the new metric when it is scraped, and an
// event costs what it costs with one name.
package renamed

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c, a metric called now with these variable labels, in reg: as it is,
// and under the name before.
func Register(reg prometheus.Registerer, c prometheus.Collector, before, now string, labels ...string) {
	help := fmt.Sprintf("Deprecated: renamed to %s. The next release no longer serves this name.", now)
	reg.MustRegister(c, &alias{c, prometheus.NewDesc(before, help, labels, nil)})
}

// alias collects another collector's metrics under a name of its own.
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

// metric is a metric with another description. Its labels and its value stay.
type metric struct {
	prometheus.Metric

	desc *prometheus.Desc
}

// Desc implements prometheus.Metric.
func (m metric) Desc() *prometheus.Desc { return m.desc }
