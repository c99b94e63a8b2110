package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/testing/abuse"
)

// Looking for examples reads the store. However often strangers load the page, that is done
// every ten minutes, and while there are none every fifteen seconds.
func TestAbuseExamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, found := 0, []Example(nil)
		h := Handler(http.NotFoundHandler(), NewLive(samples(), 1), Options{Examples: Kept(func() []Example { looks++; return found })})
		load := func() {
			for range abuse.Size(1000, 100_000) {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/page/config.json", nil))
			}
		}
		load()
		time.Sleep(noExamples)
		found = []Example{{"x", "y"}}
		load()
		if looks != 2 {
			t.Errorf("%d looks in %v", looks, noExamples)
		}
		time.Sleep(keptExamples - time.Second)
		load()
		if looks != 2 {
			t.Errorf("%d looks before what was found is old", looks)
		}
		time.Sleep(time.Second)
		load()
		abuse.Figure(t, "looks at the store", "%d in %v of %d loads a burst", looks, keptExamples+noExamples, abuse.Size(1000, 100_000))
		if looks != 3 {
			t.Errorf("%d looks: what was found is never looked for again", looks)
		}
	})
}

// Who asks while examples are looked for does not wait, and gets the ones before.
func TestKeptMeanwhile(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	kept := Kept(func() []Example { begun <- true; <-end; return []Example{{"x", "y"}} })
	done := make(chan []Example)
	go func() { done <- kept() }()
	<-begun
	if got := kept(); got != nil {
		t.Errorf("meanwhile: %v", got)
	}
	close(end)
	if got := <-done; len(got) != 1 || len(kept()) != 1 {
		t.Errorf("afterwards: %v", got)
	}
}
