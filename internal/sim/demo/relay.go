package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"skein.blue/internal/sim/synth"
)

// A Relay serves a Network to one subscriber at a time.
type Relay struct {
	n    *Network
	past chan Highlights // receives once the past has been sent
	ln   net.Listener

	mu   sync.Mutex // held while messages are made
	sent int        // messages of the past
}

// Serve serves the network on a loopback port until ctx ends.
func Serve(ctx context.Context, n *Network) (*Relay, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	r := &Relay{n: n, past: make(chan Highlights, 1), ln: ln}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { synth.Serve(w, req, r) }), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = srv.Serve(ln) }()
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return r, nil
}

// Address returns the address of the relay.
func (r *Relay) Address() string { return "ws://" + r.ln.Addr().String() }

// Past receives the highlights once the whole past has been sent.
func (r *Relay) Past() <-chan Highlights { return r.past }

// Seq returns the sequence number of the last message of the past.
func (r *Relay) Seq() int64 { return pastOps }

// Subscribe implements synth.Stream. It ignores the cursor: the past is sent once, what follows is current.
func (r *Relay) Subscribe(int64, bool) synth.Feed {
	return &feed{r: r, begin: time.Now(), tick: time.NewTicker(time.Second / perSecond), gone: make(chan struct{})}
}

type feed struct {
	r     *Relay
	begin time.Time
	tick  *time.Ticker
	gone  chan struct{}
}

// Next implements synth.Feed.
func (f *feed) Next(s *synth.Sender) error {
	const atOnce = 48
	r := f.r
	if r.some(s, f.begin, atOnce) {
		return nil
	}
	select {
	case now := <-f.tick.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.next(s, now)
		return nil
	case <-f.gone:
		return synth.ErrEnd
	}
}

// Stalled implements synth.Feed.
func (f *feed) Stalled() bool { return false }

// Close implements synth.Feed.
func (f *feed) Close() { f.tick.Stop(); close(f.gone) }

// some appends up to n messages of the past, which ends at end, and reports whether there were any.
func (r *Relay) some(s *synth.Sender, end time.Time, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		if r.sent == pastOps {
			return i > 0
		}
		r.next(s, pastAt(end, r.sent))
		if r.sent++; r.sent == pastOps {
			r.past <- r.n.highlights()
		}
	}
	return true
}

// next appends the next message. r.mu is held.
func (r *Relay) next(s *synth.Sender, at time.Time) {
	s.Append(func(dst []byte) []byte { return append(dst, r.n.next(at)...) })
}
