package app_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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

// The daemon's admin listener is guarded: TestAdminGuard and TestAbuseRebinding say how.
func TestAdminOfDaemon(t *testing.T) {
	x, _ := open(t, t.TempDir(), nil)
	_, admin, _ := serveWith(t, x, app.ServeOptions{AdminToken: "secret"})
	for _, c := range []struct {
		path, host, token string
		want              int
		why               string
	}{
		{"/", "", "", 401, "SKEIN_ADMIN_TOKEN"},
		{"/backfill", "", "wrong", 401, "SKEIN_ADMIN_TOKEN"},
		{"/backfill", "", "secret", 200, ""},
		{"/backfill", "ops.example", "secret", 200, ""},
		{"/debug/pprof/goroutine?debug=1", "rebound.example:3211", "", 403, "rebound.example"},
		{"/metrics", "rebound.example:3211", "", 403, "rebound.example"},
		{"/metrics", "", "", 200, ""},
	} {
		code, _, why := get(t, admin+c.path, func(r *http.Request) {
			if r.Host = cmp.Or(c.host, r.Host); c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
		})
		if code != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%+v: %d %s", c, code, why)
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
	must(t, err)
	base, _, stop := serve(t, x, nil)
	defer stop()
	var stats struct{ Relay string }
	if err := oracle.Get(t.Context(), base+"/xrpc/blue.skein.graph.getStats", &stats); err != nil || stats.Relay != "file" {
		t.Errorf("getStats: %+v, %v", stats, err)
	}
	for _, path := range []string{"/", "/xrpc/blue.skein.graph.getStats", "/xrpc/_health", "/xrpc/blue.skein.graph.query?set=x", "/page/config.json", "/openapi.json", "/xrpc/nothing"} {
		if _, _, all := get(t, base+path, nil); all == "" || strings.Contains(all, filepath.Dir(frames)) || strings.Contains(all, dir) {
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
	must(t, err)
	for _, path := range []string{"/car", "/backfill", "/resync"} {
		w := &withDeadlines{httptest.NewRecorder(), time.Now(), time.Now()}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, w)
		x.ServeBackfill(w, req)
		if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), os.ErrDeadlineExceeded.Error()) || !w.write.IsZero() {
			t.Errorf("%s: %d %s, to be written by %v", path, w.Code, w.Body, w.write)
		}
	}
	must(t, x.Close(context.Background()))
}
