package app

import "github.com/prometheus/client_golang/prometheus"

// RegisterFollowMetrics registers the metrics of a following node.
func RegisterFollowMetrics(reg prometheus.Registerer) { newFollowMetrics(reg) }
