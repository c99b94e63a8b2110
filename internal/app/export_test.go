package app

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterFollowMetrics registers the metrics of a following node.
func RegisterFollowMetrics(reg prometheus.Registerer) {
	failures, asOf := newFollowMetrics()
	reg.MustRegister(failures, asOf)
}

// ServeBackfill serves the endpoints of skein backfill and skein resync.
func (x *Index) ServeBackfill(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	(&server{Index: x}).backfillEndpoints(mux)
	mux.ServeHTTP(w, r)
}
