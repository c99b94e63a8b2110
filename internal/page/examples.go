package page

import (
	"sync"
	"time"
)

// An Example is a query that the page proposes, in words and as an expression.
type Example struct {
	Title string `json:"title"`
	Q     string `json:"q"`
}

// How long examples are cached, and how long an empty result is.
const (
	cacheExamples = 10 * time.Minute
	noExamples    = 15 * time.Second
)

// CacheExamples returns a function that returns the last result of find. It calls find at most
// every ten minutes, or every fifteen seconds while find finds nothing. Callers do not wait for
// another caller's find: they get the previous result.
func CacheExamples(find func() []Example) func() []Example {
	var finding, mu sync.Mutex // mu guards last and due
	var last []Example
	var due time.Time
	return func() []Example {
		mu.Lock()
		found, wait := last, time.Until(due)
		mu.Unlock()
		if wait > 0 || !finding.TryLock() {
			return found
		}
		defer finding.Unlock()
		if fresh := find(); len(fresh) > 0 {
			found, wait = fresh, cacheExamples
		} else {
			wait = noExamples
		}
		mu.Lock()
		defer mu.Unlock()
		last, due = found, time.Now().Add(wait)
		return found
	}
}
