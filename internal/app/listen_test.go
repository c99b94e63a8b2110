package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// Over the limit, idle connections are closed first, and busy ones never. If all are busy, a new
// one is refused.
func TestLimitedListener(t *testing.T) {
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 8
	var refused atomic.Int64
	ln := limitListener(tcp, most, nil, func() { refused.Add(1) })
	release := make(chan struct{})
	srv := &http.Server{ConnState: ln.state, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	})}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	open := func() int { ln.mu.Lock(); defer ln.mu.Unlock(); return len(ln.conns) }
	ask := func(path string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+tcp.Addr().String()+path, nil)
		if err != nil {
			return err
		}
		req.Close = true
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	// Connections that send nothing, far more than there is room for.
	var idle []net.Conn
	for range 20 * most {
		conn, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	for range 20 {
		if err := ask("/"); err != nil {
			t.Errorf("beside idle connections: %v", err)
		}
	}
	if n := open(); n > most || refused.Load() != 0 {
		t.Errorf("%d open, %d refused", n, refused.Load())
	}
	awaitBusy := func(want int) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			ln.mu.Lock()
			working := 0
			for c := range ln.conns {
				if !c.idle {
					working++
				}
			}
			ln.mu.Unlock()
			if working == want {
				return
			}
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%d busy, want %d", working, want)
			}
		}
	}
	awaitBusy(0) // answered connections close a moment later
	// Busy connections are never closed.
	busy := make(chan error, most)
	for range most {
		go func() { busy <- ask("/slow") }()
	}
	awaitBusy(most)
	if err := ask("/"); err == nil || refused.Load() == 0 {
		t.Errorf("one connection too many was served: %v, %d refused", err, refused.Load())
	}
	close(release)
	for range most {
		if err := <-busy; err != nil {
			t.Errorf("a busy connection was cut off: %v", err)
		}
	}
	for _, c := range idle {
		_ = c.Close()
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n := open(); n != 0 {
		t.Errorf("%d still counted as open at the end", n)
	}
}

// A client that holds every connection, all of them busy, loses some to other clients, until it has
// its share. So one with a thousand connections keeps nobody out.
func TestAbuseConnections(t *testing.T) {
	const most = 16
	l := limitListener(nil, most, nil, nil)
	server, client := net.Pipe()
	t.Cleanup(func() { _ = server.Close(); _ = client.Close() })
	connect := func(from string) bool {
		return l.add(&limitedConn{Conn: server, l: l, client: from, since: time.Now()}) // busy
	}
	for range 1000 {
		connect("stranger")
	}
	if l.of["stranger"] != most {
		t.Fatalf("%d connections", l.of["stranger"])
	}
	for i := range 4 {
		for from := range 4 {
			if !connect(string(rune('a' + from))) {
				t.Logf("client %d has %d connections, the stranger %d", from, i, l.of["stranger"])
			}
			for range 10 {
				connect("stranger") // it comes again at once
			}
		}
	}
	for _, from := range []string{"a", "b", "c", "d"} {
		if l.of[from] < 1 {
			t.Errorf("%s has no connection: %v", from, l.of)
		}
	}
	if len(l.conns) > most {
		t.Errorf("%d connections", len(l.conns))
	}
	proxied := limitListener(nil, most, nil, nil)
	for range most {
		proxied.add(&limitedConn{Conn: server, l: proxied, client: "", since: time.Now()})
	}
	if proxied.add(&limitedConn{Conn: server, l: proxied, client: "a", since: time.Now()}) {
		t.Error("a busy connection of a proxy was closed")
	}
}

// The store and both listeners always leave some file descriptors, even of a small limit.
func TestListenersLeaveDescriptors(t *testing.T) {
	for _, n := range []int{64, 256, 1024, 4096, 1 << 20} {
		d := divideDescriptors(n)
		if sum := d.tables + d.api + d.admin; sum > n*7/8 || d.tables < 16 || d.api < 8 || d.admin < 4 {
			t.Errorf("%d descriptors: %+v", n, d)
		}
	}
}
