package page

import (
	"sync"
	"time"
)

// An Example is something to ask, in words and as it is typed.
type Example struct {
	Title string `json:"title"`
	Q     string `json:"q"`
}

// How long examples are kept, and how soon they are looked for again where there were none.
const (
	keptExamples = 10 * time.Minute
	noExamples   = 15 * time.Second
)

// Kept returns a function that returns what find found lately. It calls find at most once in
// fifteen seconds, and in ten minutes once find has found something. Meanwhile nobody waits:
// who asks gets what was found before.
func Kept(find func() []Example) func() []Example {
	var finding, mu sync.Mutex // mu guards what follows
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
			found, wait = fresh, keptExamples
		} else {
			wait = noExamples
		}
		mu.Lock()
		defer mu.Unlock()
		last, due = found, time.Now().Add(wait)
		return found
	}
}
