package query

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Queries are counted by method and status, while they wait, and by how long they waited.
func TestMetrics(t *testing.T) {
	s := starServer(t, 5, -1)
	m := NewMetrics(prometheus.NewRegistry())
	s, err := New(s.index.store, Options{Metrics: m, Concurrent: 1})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) int {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph."+path, nil))
		return w.Code
	}
	if get("query?set=followers("+star+")") != 200 || get("query?set=nonsense") != 400 {
		t.Fatal("the queries have other answers")
	}
	const method = "blue.skein.graph.query"
	for code, want := range map[string]float64{"200": 1, "400": 1, "500": 0} {
		if n := testutil.ToFloat64(m.Requests.WithLabelValues(method, code)); n != want {
			t.Errorf("%v queries with status %s, want %v", n, code, want)
		}
	}
	if err := s.queues.Light.Enter(t.Context(), "someone"); err != nil { // the only slot
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	asked.Go(func() { get("query?set=followers(" + star + ")") })
	for began := time.Now(); s.queues.Light.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("no query waits")
		}
	}
	if n := testutil.ToFloat64(m.InFlight); n != 1 {
		t.Errorf("%v queries in flight, want 1", n)
	}
	time.Sleep(20 * time.Millisecond)
	s.queues.Light.Leave("someone", time.Now())
	asked.Wait()
	if n := testutil.ToFloat64(m.InFlight); n != 0 {
		t.Errorf("%v queries in flight afterwards", n)
	}
	waits := testutil.CollectAndCount(m.Waits)
	if waits != 3 {
		t.Errorf("%d queues have waits, want 3", waits)
	}
}
