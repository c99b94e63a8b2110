package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/sim/harness"
)

// Finding examples reads the store. However often strangers load the page, it happens at most
// every ten minutes, or every fifteen seconds while there are none.
func TestAbuseExamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, found := 0, []Example(nil)
		h := Handler(http.NotFoundHandler(), NewLive(samples()), Options{Examples: CacheExamples(func() []Example { looks++; return found })})
		load := func() {
			for range harness.Size(1000, 100_000) {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/page/config.json", nil))
			}
		}
		load()
		time.Sleep(noExamples)
		found = []Example{{"x", "y"}}
		load()
		if looks != 2 {
			t.Errorf("%d searches in %v", looks, noExamples)
		}
		time.Sleep(cacheExamples - time.Second)
		load()
		if looks != 2 {
			t.Errorf("%d searches before the cache expires", looks)
		}
		time.Sleep(time.Second)
		load()
		harness.Figure(t, "searches of the store", "%d in %v of %d loads a burst", looks, cacheExamples+noExamples, harness.Size(1000, 100_000))
		if looks != 3 {
			t.Errorf("%d searches: the cache never expires", looks)
		}
	})
}

// While one caller finds examples, the others do not wait and get the previous ones.
func TestCacheDoesNotBlock(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	cached := CacheExamples(func() []Example { begun <- true; <-end; return []Example{{"x", "y"}} })
	done := make(chan []Example)
	go func() { done <- cached() }()
	<-begun
	if got := cached(); got != nil {
		t.Errorf("meanwhile: %v", got)
	}
	close(end)
	if got := <-done; len(got) != 1 || len(cached()) != 1 {
		t.Errorf("afterwards: %v", got)
	}
}
