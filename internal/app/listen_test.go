package app

import (
	"context"
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

// limited serves h on a limited listener.
func limited(t *testing.T, most int, refused func(), h http.HandlerFunc) (ln *limitedListener, srv *http.Server) {
	t.Helper()
	tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	srv = &http.Server{ReadHeaderTimeout: time.Minute, Handler: h}
	ln, _ = Limit(srv, tcp, most, clients.Proxies{}, refused).(*limitedListener)
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return ln, srv
}

// dial opens connections, and sends text on each.
func dial(t *testing.T, to net.Listener, n int, text string) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", to.Addr().String())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, text)
	}
}

// Over the limit, idle connections are closed first, and busy ones never. If all are busy, a new
// one is refused.
func TestLimitedListener(t *testing.T) {
	const most = 8
	var refused, working atomic.Int64
	release := make(chan struct{})
	ln, srv := limited(t, most, func() { refused.Add(1) }, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil && r.URL.Path == "/slow" {
			working.Add(1)
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	ask := func(path string) error {
		resp, err := client.PostForm("http://"+ln.Addr().String()+path, url.Values{"a": {"b"}})
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	dial(t, ln, 20*most, "") // far more than there is room for
	for range 20 {
		if err := ask("/"); err != nil {
			t.Errorf("beside idle connections: %v", err)
		}
	}
	if n := ln.pool.Held(); n > most || refused.Load() != 0 {
		t.Errorf("%d open, %d refused", n, refused.Load())
	}
	time.Sleep(50 * time.Millisecond) // answered connections close a moment later
	busy := make(chan error, most)
	for range most - 1 {
		go func() { busy <- ask("/slow") }()
	}
	go func() { // without a body
		resp, err := client.Get("http://" + ln.Addr().String() + "/slow")
		if err == nil {
			err = resp.Body.Close()
		}
		busy <- err
	}()
	for began := time.Now(); working.Load() < most; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d busy, want %d", working.Load(), most)
		}
	}
	if err := ask("/"); err == nil || refused.Load() == 0 {
		t.Errorf("one connection too many was served: %v, %d refused", err, refused.Load())
	}
	close(release)
	for range most {
		if err := <-busy; err != nil {
			t.Errorf("a busy connection was cut off: %v", err)
		}
	}
	must(t, srv.Shutdown(t.Context()))
	if n := ln.pool.Held(); n != 0 {
		t.Errorf("%d still counted as open at the end", n)
	}
}

// A request whose body does not come leaves its connection as idle as none: few slow clients keep nobody out.
func TestAbuseSlowBodies(t *testing.T) {
	const most = 8
	forms := xrpc.NewForms()
	ln, _ := limited(t, most, func() { t.Error("refused") }, func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		_, release, err := forms.Read(ctx, end, w, r, new(xrpc.Method), time.Minute)
		if err == nil {
			defer release()
			_, _ = io.WriteString(w, "ok")
		}
	})
	dial(t, ln, 4*most, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000000\r\n\r\na")
	answered := 0
	for range 40 {
		resp, err := http.PostForm("http://"+ln.Addr().String(), url.Values{"set": {"a"}})
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

// The store and both listeners always leave some file descriptors, even of a small limit, and use few of a large one.
func TestListenersLeaveDescriptors(t *testing.T) {
	for _, n := range []int{64, 256, 1024, 4096, 1 << 20} {
		d := divideDescriptors(n)
		if sum := d.tables + d.api + d.admin; sum > n*7/8 || d.tables < 16 || d.api < 8 || d.api > 4096 || d.admin < 4 {
			t.Errorf("%d descriptors: %+v", n, d)
		}
	}
}
