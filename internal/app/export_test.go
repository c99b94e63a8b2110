package app

import "net/http"

// ServeBackfill serves the endpoints of skein backfill and skein resync.
func (x *Index) ServeBackfill(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	(&server{Index: x}).backfillEndpoints(mux)
	mux.ServeHTTP(w, r)
}
