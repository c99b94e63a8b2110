package page

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/sse"
	"skein.blue/query"
)

// history is how many seconds the page can look back.
const history = 900

// A Sample is what the index is at one moment.
type Sample struct {
	Version    string        `json:"version"`
	Engine     string        `json:"engine"`
	State      string        `json:"state"`                // of the consumer (query.Status)
	Lag        *float64      `json:"lag,omitempty"`        // seconds
	Cursor     *int64        `json:"cursor,omitempty"`     // the newest that is committed
	CursorTime *time.Time    `json:"cursorTime,omitempty"` // of that event
	Disk       uint64        `json:"disk"`                 // bytes
	Waiting    *int64        `json:"waiting,omitempty"`    // repos to be fetched whole
	Edges      int64         `json:"edges"`                // records
	Counts     format.Counts `json:"counts"`
	// Events is how many have been applied since the start.
	Events int64 `json:"-"`
}

// message is what a page is sent: a sample, what has changed in the last second, and at
// first what was before.
type message struct {
	*Sample

	EventRate int64  `json:"eventRate"`
	EdgeRate  int64  `json:"edgeRate"`
	History   *rates `json:"history,omitempty"`
}

type rates struct {
	Events []int64 `json:"events"`
	Edges  []int64 `json:"edges"`
}

// failures is how many samples may be missed before that is said.
const failures = 3

// Live takes a sample of the index once a second, and tells all who look. A message is made
// once, whoever receives it.
type Live struct {
	sample func(ctx context.Context) (Sample, error)
	most   int

	mu      sync.Mutex
	ended   bool
	failed  int     // samples, one after another
	last    *Sample // the last that could be taken
	at      time.Time
	shown   *Sample // what is told
	past    rates
	newest  []byte                 // the last message, as it is sent
	viewers map[chan []byte]string // and what client each is
	clients map[string]int
}

// NewLive returns a Live that asks sample, and tells so many at a time at most; a client
// has half of them.
func NewLive(sample func(ctx context.Context) (Sample, error), most int) *Live {
	return &Live{sample: sample, most: most, viewers: map[chan []byte]string{}, clients: map[string]int{}}
}

// Run takes samples until ctx ends.
func (l *Live) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		l.take(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.end()
			return
		}
	}
}

// take takes a sample, and tells it. One that cannot be taken is left out; of several, the
// state is told to be unknown.
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
	m := message{Sample: &s}
	if seconds := now.Sub(l.at).Seconds(); err == nil && l.last != nil && seconds > 0 {
		m.EventRate = int64(float64(s.Events-l.last.Events)/seconds + 0.5)
		m.EdgeRate = int64(float64(s.Edges-l.last.Edges) / seconds)
		l.past.Events, l.past.Edges = remember(l.past.Events, m.EventRate), remember(l.past.Edges, m.EdgeRate)
	}
	if l.shown = &s; err == nil {
		l.last, l.at, l.failed = &s, now, 0
	}
	b, err := json.Marshal(m)
	if err != nil {
		return
	}
	l.newest = (&sse.Event{Data: b}).Append(nil)
	for v := range l.viewers {
		select {
		case v <- l.newest:
		default: // it is slow, and gets the next one
		}
	}
}

func remember(list []int64, n int64) []int64 {
	if len(list) == history {
		list = list[:copy(list, list[1:])]
	}
	return append(list, n)
}

// end sends all away.
func (l *Live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for v := range l.viewers {
		close(v)
		delete(l.viewers, v)
	}
}

// join returns where a viewer is told, and the first message; ok is false if there are too
// many, or nothing is there to be told.
func (l *Live) join(client string) (v chan []byte, first []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.last == nil || len(l.viewers) >= l.most || l.clients[client] >= (l.most+1)/2 {
		return nil, nil, false
	}
	m := message{Sample: l.shown, History: &rates{append([]int64{}, l.past.Events...), append([]int64{}, l.past.Edges...)}}
	if n := len(l.past.Events); n > 0 {
		m.EventRate, m.EdgeRate = l.past.Events[n-1], l.past.Edges[n-1]
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, nil, false
	}
	v = make(chan []byte, 4)
	l.viewers[v] = client
	l.clients[client]++
	return v, (&sse.Event{Data: b}).Append(nil), true
}

func (l *Live) leave(v chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	client, there := l.viewers[v]
	if !there {
		return
	}
	delete(l.viewers, v)
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
	}
}

// serve tells one viewer.
func (l *Live) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead { // it would have no end
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	v, first, ok := l.join(query.ClientOf(r))
	if !ok {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many are looking already, or nothing is known yet", http.StatusServiceUnavailable)
		return
	}
	defer l.leave(v)
	stream := sse.Start(w)
	if stream.Write(first) != nil {
		return
	}
	for {
		select {
		case b, ok := <-v:
			if !ok || stream.Write(b) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
