package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/clients"
	"skein.blue/internal/sim/harness"
	"skein.blue/query/xrpc"
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
	ln := limitListener(tcp, most, clients.Proxies{}, func() { refused.Add(1) })
	release := make(chan struct{})
	var working atomic.Int64
	srv := &http.Server{ConnState: ln.state, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			working.Add(1)
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	})}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	open := func() int { return int(ln.pool.Held()) }
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
			if working.Load() == int64(want) {
				return
			}
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%d busy, want %d", working.Load(), want)
			}
		}
	}
	time.Sleep(50 * time.Millisecond) // answered connections close a moment later
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

// A request whose body does not come leaves its connection as idle as none: few slow clients keep nobody out.
func TestAbuseSlowBodies(t *testing.T) {
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 8
	ln := limitListener(tcp, most, clients.Proxies{}, func() { t.Error("refused") })
	forms := xrpc.NewForms()
	srv := &http.Server{ConnState: ln.state, ConnContext: ln.context, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		_, release, err := forms.Read(ctx, end, w, r, time.Minute)
		if err == nil {
			defer release()
			_, _ = io.WriteString(w, "ok")
		}
	})}
	go func() { _ = srv.Serve(ln) }()
	defer func() { _ = srv.Close() }()
	for range 4 * most { // requests whose bodies do not come
		conn, err := net.Dial("tcp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000000\r\n\r\na")
	}
	answered := 0
	for range 40 {
		resp, err := http.PostForm("http://"+tcp.Addr().String(), url.Values{"set": {"a"}})
		if err == nil {
			if resp.StatusCode == http.StatusOK {
				answered++
			}
			_ = resp.Body.Close()
		}
	}
	harness.Figure(t, "forms beside requests whose bodies do not come", "%d connections allowed, %d held: %d of 40 forms answered", most, 4*most, answered)
	if answered != 40 {
		t.Errorf("%d of 40 forms were answered", answered)
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
