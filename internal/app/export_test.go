package app

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterFollowMetric registers the metric of a following node.
func RegisterFollowMetric(reg prometheus.Registerer) { reg.MustRegister(newFollowMetric()) }

// ServeBackfill serves the endpoints of skein backfill and skein resync.
func (x *Index) ServeBackfill(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	(&server{Index: x}).backfillEndpoints(mux)
	mux.ServeHTTP(w, r)
}
