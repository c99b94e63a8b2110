package page

import (
	"context"
	"net/http"
	"sync"
	"time"

	"skein.blue/graph/format"
)

// history is how many seconds the page can look back.
const history = 900

// A Sample is the state of the index at one moment.
type Sample struct {
	Version    string        `json:"version"`
	Engine     string        `json:"engine"`
	State      string        `json:"state"`                // of the consumer (query.Status)
	Lag        *float64      `json:"lag,omitempty"`        // seconds
	Cursor     *int64        `json:"cursor,omitempty"`     // the newest committed one
	CursorTime *time.Time    `json:"cursorTime,omitempty"` // of that event
	Disk       uint64        `json:"disk"`                 // bytes
	Waiting    *int64        `json:"waiting,omitempty"`    // repos in the resync queue
	Audited    *int64        `json:"audited,omitempty"`    // repos compared with their hosts
	Reason     string        `json:"reason,omitempty"`     // why answers that depend on everybody are incomplete
	Members    int           `json:"members,omitempty"`    // accounts of the part of the network that is indexed; 0: it is all of it
	Edges      int64         `json:"edges"`                // records
	Counts     format.Counts `json:"counts"`
	// Differences is the number of records of Audited repos that differ.
	Differences int64 `json:"differences,omitempty"`
	// Events is the number of events applied since the start.
	Events int64 `json:"-"`
}

// message is what a page receives: a sample, its number, the rates of the last second, and if the page asks, the history.
type message struct {
	*Sample

	Number    int64  `json:"number"`
	EventRate int64  `json:"eventRate"`
	EdgeRate  int64  `json:"edgeRate"`
	History   *rates `json:"history,omitempty"`
}

type rates struct {
	Events []int64 `json:"events"`
	Edges  []int64 `json:"edges"`
}

// failures is how many samples must fail in a row before viewers learn about it.
const failures = 3

// Live takes a sample of the index once a second, for all viewers.
type Live struct {
	sample func(ctx context.Context) (Sample, error)

	mu     sync.Mutex // guards the fields below
	failed int        // failed samples in a row
	last   *Sample    // the last successful one
	at     time.Time
	past   rates
	shown  message // its Sample is nil before the first one
}

// NewLive returns a Live that takes samples by calling sample.
func NewLive(sample func(ctx context.Context) (Sample, error)) *Live { return &Live{sample: sample} }

// Run takes samples until ctx ends. It returns nil.
func (l *Live) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		l.take(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes a sample. It skips a failed sample; after several in a row it shows the last sample with an unknown state.
func (l *Live) take(ctx context.Context) {
	now := time.Now()
	s, err := l.sample(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.failed++; l.failed < failures || l.last == nil {
			return
		}
		s = *l.last
		s.State, s.Lag = "unknown", nil
	}
	m := message{Sample: &s, Number: l.shown.Number + 1}
	if seconds := now.Sub(l.at).Seconds(); err == nil && l.last != nil && seconds > 0 {
		m.EventRate = int64(float64(s.Events-l.last.Events)/seconds + 0.5)
		m.EdgeRate = int64(float64(s.Edges-l.last.Edges) / seconds)
		l.past.Events, l.past.Edges = remember(l.past.Events, m.EventRate), remember(l.past.Edges, m.EdgeRate)
	}
	if l.shown = m; err == nil {
		l.last, l.at, l.failed = &s, now, 0
	}
}

func remember(list []int64, n int64) []int64 {
	list = append(list, n)
	return list[max(0, len(list)-history):]
}

// ServeHTTP implements http.Handler: it answers with the newest message, with ?history including the history.
func (l *Live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	m := l.shown
	if r.URL.Query().Has("history") {
		m.History = &rates{append([]int64{}, l.past.Events...), append([]int64{}, l.past.Edges...)}
	}
	l.mu.Unlock()
	if m.Sample == nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "no data yet; try again later", http.StatusServiceUnavailable)
		return
	}
	answerJSON(w, m)
}
