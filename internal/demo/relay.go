package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// A Relay serves a Network to one subscriber at a time.
type Relay struct {
	n    *Network
	past chan Highlights // receives once the past has been sent
	ln   net.Listener

	mu    sync.Mutex // held during a subscription
	begun bool
}

// Serve serves the network on a loopback port until ctx ends.
func Serve(ctx context.Context, n *Network) (*Relay, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	r := &Relay{n: n, past: make(chan Highlights, 1), ln: ln}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.send(ctx, w, req) }), ReadHeaderTimeout: 5 * time.Second}
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

// send sends the stream to a subscriber.
func (r *Relay) send(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	conn, err := (&websocket.Upgrader{}).Upgrade(w, req, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = conn.Close() }()
	r.mu.Lock()
	defer r.mu.Unlock()
	go func() { // the connection answers pings only while it is read
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	begin := time.Now()
	for i := 0; i < pastOps && !r.begun; i++ {
		if conn.WriteMessage(websocket.BinaryMessage, r.n.next(pastAt(begin, i))) != nil {
			return
		}
	}
	if !r.begun {
		r.begun = true
		r.past <- r.n.highlights()
	}
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if conn.WriteMessage(websocket.BinaryMessage, r.n.next(now)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
