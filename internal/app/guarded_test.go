package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/oracle"
)

// An admin listener that is not on loopback serves only metrics and health without a token, and
// names the variable to set. With one it serves requests that have the token.
func TestAdminTokenOfDaemon(t *testing.T) {
	for _, token := range []string{"", "secret"} {
		x, closeIt := open(t, t.TempDir(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		ready, done := make(chan string, 1), make(chan error, 1)
		go func() {
			done <- x.Serve(ctx, app.ServeOptions{
				Listen: "127.0.0.1:0", AdminListen: "0.0.0.0:0", AdminToken: token, Version: "test",
				Ready: func(_, admin net.Addr) { ready <- admin.String() },
			})
		}()
		var port string
		select {
		case at := <-ready:
			_, port, _ = net.SplitHostPort(at)
		case err := <-done:
			t.Fatal(err)
		case <-time.After(10 * time.Second):
			t.Fatal("not ready in ten seconds")
		}
		ask := func(method, path, sent string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+port+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "10.1.2.3:3211" // a pod's
			req.Header.Set("Content-Type", "application/vnd.ipld.car")
			if sent != "" {
				req.Header.Set("Authorization", "Bearer "+sent)
			}
			return send(t, req)
		}
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			if code, _ := ask(http.MethodGet, path, ""); code != 200 {
				t.Errorf("token %q: %s: %d", token, path, code)
			}
		}
		want := 403
		if token != "" {
			want = 401
		}
		for _, path := range []string{"/", "/gaps", "/resyncs", "/backfill", "/debug/pprof/cmdline"} {
			if code, why := ask(http.MethodGet, path, "wrong"); code != want || !strings.Contains(why, "SKEIN_ADMIN_TOKEN") {
				t.Errorf("token %q: %s: %d %s", token, path, code, why)
			}
			if code, _ := ask(http.MethodGet, path, token); token != "" && code != 200 {
				t.Errorf("token %q, sent: %s: %d", token, path, code)
			}
		}
		if code, why := ask(http.MethodPost, "/car", ""); code != want {
			t.Errorf("token %q: a forged repo: %d %s", token, code, why)
		}
		if code, why := ask(http.MethodPost, "/car", token); token != "" && code != http.StatusConflict { // this index fetches no repos
			t.Errorf("a repo with the token: %d %s", code, why)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		closeIt()
	}
}

// A page whose name was rebound to the daemon's loopback address gets a 403.
func TestAdminRebindingOfDaemon(t *testing.T) {
	x, closeIt := open(t, t.TempDir(), nil)
	defer closeIt()
	_, admin, stop := serve(t, x, nil)
	defer stop()
	at, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/backfill", "/metrics", "/debug/pprof/goroutine?debug=1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "rebound.example:" + at.Port()
		if code, why := send(t, req); code != 403 || !strings.Contains(why, "rebound.example") {
			t.Errorf("%s: %d %s", path, code, why)
		}
		req.Host = "localhost:" + at.Port()
		if code, why := send(t, req); code != 200 {
			t.Errorf("%s of localhost: %d %s", path, code, why)
		}
	}
}

// The public listener never reveals the local path of the store or of a recording.
func TestNoLocalPaths(t *testing.T) {
	dir := t.TempDir()
	x, closeIt := open(t, dir, nil)
	defer closeIt()
	replay(t, x, consumer.Options{Frames: plainPDS})
	frames, err := filepath.Abs(plainPDS)
	if err != nil {
		t.Fatal(err)
	}
	base, _, stop := serve(t, x, nil)
	defer stop()
	var stats struct{ Relay string }
	if err := oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph.getStats", &stats); err != nil || stats.Relay != "file" {
		t.Errorf("getStats: %+v, %v", stats, err)
	}
	for _, path := range []string{"/", "/xrpc/blue.skein.graph.getStats", "/xrpc/_health", "/xrpc/blue.skein.graph.query?set=x", "/page/config.json", "/openapi.json", "/xrpc/nothing"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, all := send(t, req); all == "" || strings.Contains(all, filepath.Dir(frames)) || strings.Contains(all, dir) {
			t.Errorf("%s: %s", path, all)
		}
	}
}

// withDeadlines has the deadlines of a connection.
type withDeadlines struct {
	*httptest.ResponseRecorder

	read, write time.Time
}

func (w *withDeadlines) SetReadDeadline(at time.Time) error  { w.read = at; return nil }
func (w *withDeadlines) SetWriteDeadline(at time.Time) error { w.write = at; return nil }

// Read implements io.Reader for the body of the request.
func (w *withDeadlines) Read([]byte) (int, error) {
	if !w.read.IsZero() || !w.write.IsZero() {
		return 0, os.ErrDeadlineExceeded // as if it took that long
	}
	return 0, io.EOF
}

// The server's deadlines do not end what an operator asks for: a large repo that is sent slowly, or
// takes long to be placed, gets its answer.
func TestOperatorsRequestsTakeTheirTime(t *testing.T) {
	x, err := app.OpenIndex(t.Context(), app.StoreOptions{
		Store: t.TempDir(), Create: true, Memory: 64 << 20, Backfill: &backfill.Options{Relay: "ws://127.0.0.1:1", PLC: "http://127.0.0.1:1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, contentType := range map[string]string{"/car": "application/vnd.ipld.car", "/backfill": "application/json", "/resync": "application/json"} {
		w := &withDeadlines{httptest.NewRecorder(), time.Now(), time.Now()}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, w)
		req.Header.Set("Content-Type", contentType)
		x.ServeBackfill(w, req)
		if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), os.ErrDeadlineExceeded.Error()) || !w.write.IsZero() {
			t.Errorf("%s: %d %s, to be written by %v", path, w.Code, w.Body, w.write)
		}
	}
	if err := x.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
