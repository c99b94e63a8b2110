package page

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/clients"
	"skein.blue/query/xrpc"
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
	Edges      int64         `json:"edges"`                // records
	Counts     format.Counts `json:"counts"`
	// Differences is the number of records of Audited repos that differ.
	Differences int64 `json:"differences,omitempty"`
	// Events is the number of events applied since the start.
	Events int64 `json:"-"`
}

// message is what a page receives: a sample, the rates of the last second, and in the first
// message the history.
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

// failures is how many samples must fail in a row before viewers learn about it.
const failures = 3

// Live takes a sample of the index once a second, and sends it to all viewers. It encodes each
// message once for all of them.
type Live struct {
	sample func(ctx context.Context) (Sample, error)
	pool   *clients.Pool

	mu      sync.Mutex // guards the fields below
	ended   bool
	failed  int     // failed samples in a row
	last    *Sample // the last successful one
	at      time.Time
	shown   *Sample // the last one that was sent
	past    rates
	newest  []byte // the last message, encoded
	viewers map[chan []byte]*clients.Hold
}

// NewLive returns a Live that takes samples by calling sample. It has at most so many viewers at a
// time, which clients share (clients.Pool).
func NewLive(sample func(ctx context.Context) (Sample, error), most int) *Live {
	return &Live{sample: sample, pool: clients.NewPool(int64(most)), viewers: map[chan []byte]*clients.Hold{}}
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

// take takes a sample, and sends it. It skips a failed sample; after several in a row it sends the
// last sample with an unknown state.
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
	l.newest = (&xrpc.Event{Data: b}).Append(nil)
	for v := range l.viewers {
		select {
		case v <- l.newest:
		default: // a slow viewer skips a message
		}
	}
}

func remember(list []int64, n int64) []int64 {
	if len(list) == history {
		list = list[:copy(list, list[1:])]
	}
	return append(list, n)
}

// end disconnects all viewers.
func (l *Live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for v, hold := range l.viewers {
		hold.Give()
		close(v)
		delete(l.viewers, v)
	}
}

// join returns a new viewer's channel, and its first message. ok is false if there are too many
// viewers, or no sample yet.
func (l *Live) join(client string) (v chan []byte, first []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.last == nil {
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
	hold, ok := l.pool.Take(client, 1, func() { l.leave(v) })
	if !ok {
		return nil, nil, false
	}
	l.viewers[v] = hold
	return v, (&xrpc.Event{Data: b}).Append(nil), true
}

// leave disconnects a viewer.
func (l *Live) leave(v chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hold, joined := l.viewers[v]; joined {
		hold.Give()
		close(v)
		delete(l.viewers, v)
	}
}

// serve sends messages to one viewer.
func (l *Live) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead { // the stream would not end
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	v, first, ok := l.join(clients.Of(r))
	if !ok {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many viewers, or no data yet; try again later", http.StatusServiceUnavailable)
		return
	}
	defer l.leave(v)
	stream := xrpc.StartStream(w, r)
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
