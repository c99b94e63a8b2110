package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/clients"

	"skein.blue/query/feed"
)

// must ends a test at an error.
func must(t testing.TB, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

// samples returns a function that returns samples with growing numbers of events and edges.
func samples() func(context.Context) (Sample, error) {
	n := int64(0)
	return func(context.Context) (Sample, error) {
		n++
		return Sample{Version: "1", State: "live", Events: 10 * n, Edges: 5 * n}, nil
	}
}

func get(t *testing.T, address, accept string) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must(t, err)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, resp.Header, string(b)
}

// A browser gets the page, and other clients the API. The page is small, names no other servers,
// and its policy forbids everything else.
func TestHandler(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "api "+r.URL.Path) })
	srv := httptest.NewServer(Handler(api, NewLive(samples(), most), Options{
		Public: true, Examples: func() []Example { return []Example{{"x", "y"}} }, Feeds: func() []feed.Preview { return []feed.Preview{{Name: "f", URI: "at://x", Shows: "s", Viewer: true}} },
	}))
	defer srv.Close()
	const html = "text/html,application/xhtml+xml"
	for _, test := range []struct{ path, accept, contentType, body string }{
		{"/", html, "text/html; charset=utf-8", "<!doctype html>"},
		{"/?q=follows(x)", html, "text/html; charset=utf-8", "<!doctype html>"},
		{"/?plain", html, "text/plain; charset=utf-8", "api /"},
		{"/", "*/*", "text/plain; charset=utf-8", "api /"},
		{"/xrpc/x", html, "text/plain; charset=utf-8", "api /xrpc/x"},
		{"/page/app.js", "*/*", "text/javascript; charset=utf-8", "// The page"},
		{"/page/live.js", "*/*", "text/javascript; charset=utf-8", "// The section Index status"},
		{"/page/complete.js", "*/*", "text/javascript; charset=utf-8", "// Completion"},
		{"/page/style.css", "*/*", "text/css; charset=utf-8", ":root"},
		{"/page/icon.svg", "*/*", "image/svg+xml", "<svg"},
		{"/page/none.js", "*/*", "text/plain; charset=utf-8", "404"},
		{"/page/config.json", "*/*", "application/json", `{"handles":false,"people":false,"public":true,"sets":[{"name":"followers",`},
		{"/robots.txt", "*/*", "text/plain; charset=utf-8", "User-agent"},
	} {
		status, header, body := get(t, srv.URL+test.path, test.accept)
		if got := header.Get("Content-Type"); got != test.contentType || !strings.HasPrefix(body, test.body) {
			t.Errorf("%s as %s: %s %.40q", test.path, test.accept, got, body)
		}
		if rest := `],"examples":[{"title":"x","q":"y"}],"feeds":[{"name":"f","uri":"at://x","shows":"s","viewer":true}]}`; test.path == "/page/config.json" && !strings.HasSuffix(strings.TrimSpace(body), rest) {
			t.Errorf("config.json: %s", body)
		}
		if isPage := strings.HasPrefix(test.path, "/page/") && test.path != "/page/config.json" && status == 200 || test.body == "<!doctype html>"; isPage != (header.Get("Content-Security-Policy") == policy) {
			t.Errorf("%s: policy %q", test.path, header.Get("Content-Security-Policy"))
		}
	}
	size := 0
	for name, f := range files {
		if size += len(f.plain); f.contentType == "" {
			t.Errorf("%s has no type", name)
		}
		for _, address := range []string{"http://", "https://"} {
			for rest := string(f.plain); ; {
				_, after, found := strings.Cut(rest, address)
				if !found {
					break
				}
				host, _, _ := strings.Cut(after, "/")
				switch {
				case host == "public.api.bsky.app", host == "bsky.app", host == "cdn.bsky.app", host == "www.w3.org", strings.HasPrefix(host, `\`), strings.HasPrefix(host, ")"):
				default:
					t.Errorf("%s names %s%s", name, address, host)
				}
				rest = after
			}
		}
	}
	if size > 64<<10 {
		t.Errorf("the page has %d bytes, more than 64 KiB", size)
	}
}

const most = 1000

// All viewers receive the same messages, the first with the history. Viewers that do not read miss
// messages and delay nobody. Their number is bounded, and the end disconnects all of them.
func TestLive(t *testing.T) {
	l := NewLive(samples(), most)
	srv := httptest.NewServer(http.HandlerFunc(l.serve))
	defer srv.Close()
	if status, _, _ := get(t, srv.URL, ""); status != http.StatusServiceUnavailable {
		t.Errorf("before the first sample: %d", status)
	}
	for range history + 5 {
		l.take(t.Context())
	}
	type received struct {
		Events    int64
		Edges     int64
		EventRate int64
		History   *rates
	}
	var all []*bufio.Scanner
	next := func(in *bufio.Scanner) (m received) {
		for in.Scan() {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				must(t, json.Unmarshal([]byte(data), &m))
				return m
			}
		}
		return received{Edges: -1}
	}
	for range 3 {
		resp, err := http.Get(srv.URL)
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 1<<20)
		all = append(all, in)
		if m := next(in); m.History == nil || len(m.History.Events) != history || len(m.History.Edges) != history || m.Edges != 5*(history+5) {
			t.Fatalf("the first message: %+v", m)
		}
	}
	l.take(t.Context())
	for _, in := range all {
		if m := next(in); m.History != nil || m.Edges != 5*(history+6) || m.EventRate <= 0 {
			t.Errorf("the next message: %+v", m)
		}
	}
	for range 100 { // nobody reads
		l.take(t.Context())
	}
	l.mu.Lock()
	full := clients.NewPool(1)
	if _, ok := full.Take("y", 1, func() {}); !ok {
		t.Fatal("no room for one")
	}
	l.pool = full // each client has as few as the newcomer
	l.mu.Unlock()
	if status, header, _ := get(t, srv.URL, ""); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("one viewer too many: %d", status)
	}
	l.end()
	for _, in := range all {
		for m := next(in); m.Edges >= 0; m = next(in) {
		}
	}
	if _, _, ok := l.join("x"); ok {
		t.Error("a viewer joined after the end")
	}
}

// A failed sample is skipped. After several in a row, old and new viewers learn that the state is
// unknown.
func TestFailedSamples(t *testing.T) {
	failing := true
	next := samples()
	l := NewLive(func(ctx context.Context) (Sample, error) {
		if failing {
			return Sample{}, errors.New("the store is damaged")
		}
		return next(ctx)
	}, 10)
	state := func(b []byte) string {
		var m struct{ State string }
		must(t, json.Unmarshal(b[len("data: "):], &m))
		return m.State
	}
	l.take(t.Context())
	if _, _, ok := l.join("x"); ok {
		t.Error("a viewer joined before the first sample")
	}
	failing = false
	l.take(t.Context())
	l.take(t.Context())
	v, _, _ := l.join("x")
	known := state(l.newest)
	failing = true
	at := l.at
	for i := range 4 {
		l.take(t.Context())
		if sent := len(v); sent != max(0, i-1) {
			t.Errorf("after %d failures %d messages", i+1, sent)
		}
	}
	if !l.at.Equal(at) {
		t.Error("the rate after an outage must cover the whole outage")
	}
	if s := state(<-v); s != "unknown" || known == s {
		t.Errorf("%s after %s", s, known)
	}
	if _, first, _ := l.join("y"); state(first) != "unknown" {
		t.Errorf("a new viewer receives %s", first)
	}
	failing = false
	l.take(t.Context())
	if _, first, _ := l.join("z"); state(first) != known {
		t.Errorf("afterwards: %s", first)
	}
	synctest.Test(t, func(t *testing.T) { // samples are taken until the context ends
		ctx, stop := context.WithCancel(t.Context())
		l := NewLive(samples(), 10)
		go l.Run(ctx)
		time.Sleep(time.Minute)
		v, _, ok := l.join("x")
		time.Sleep(4500 * time.Millisecond)
		if !ok || len(v) != 4 {
			t.Errorf("joined: %v, %d samples", ok, len(v))
		}
		stop()
		synctest.Wait()
		if _, _, ok := l.join("y"); ok {
			t.Error("a viewer joined after the end")
		}
	})
}

// HEAD /live ends, and an unchanged file is not sent again.
func TestHeadMethod(t *testing.T) {
	l := NewLive(samples(), most)
	l.take(t.Context())
	srv := httptest.NewServer(Handler(http.NotFoundHandler(), l, Options{}))
	defer srv.Close()
	ask := func(method, path string, header ...string) (int, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
		must(t, err)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		must(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	if status, header := ask("HEAD", "/live"); status != 200 || header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD /live: %d", status)
	}
	_, header := ask("GET", "/page/app.js", "Accept-Encoding", "br, gzip")
	if header.Get("Content-Encoding") != "gzip" {
		t.Error("app.js is not compressed")
	}
	if status, _ := ask("GET", "/page/app.js", "If-None-Match", header.Get("ETag")); status != 304 {
		t.Errorf("app.js is sent again: %d", status)
	}
	for _, no := range []string{"identity", "gzip;q=0", "gzip; q=0.0, br"} {
		if _, header := ask("GET", "/page/app.js", "Accept-Encoding", no); header.Get("Content-Encoding") != "" {
			t.Errorf("Accept-Encoding %s: the answer is %s", no, header.Get("Content-Encoding"))
		}
	}
}
