package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
	srv := httptest.NewServer(Handler(api, NewLive(samples()), Options{
		Public: true, Service: "did:web:s", Examples: func() []Example { return []Example{{"x", "y"}} },
	}))
	defer srv.Close()
	const html = "text/html,application/xhtml+xml"
	for _, test := range []struct{ path, accept, contentType, body string }{
		{"/", html, "text/html; charset=utf-8", "<!doctype html>"},
		{"/?q=follows(x)", html, "text/html; charset=utf-8", "<!doctype html>"},
		{"/", "*/*", "text/html; charset=utf-8", "<!doctype html>"},
		{"/xrpc/x", html, "text/plain; charset=utf-8", "api /xrpc/x"},
		{"/page/app.js", "*/*", "text/javascript; charset=utf-8", "'use strict'"},
		{"/page/live.js", "*/*", "text/javascript; charset=utf-8", "'use strict'"},
		{"/page/complete.js", "*/*", "text/javascript; charset=utf-8", "'use strict'"},
		{"/page/style.css", "*/*", "text/css; charset=utf-8", ":root"},
		{"/page/icon.svg", "*/*", "image/svg+xml", "<svg"},
		{"/page/config.json", "*/*", "application/json", `{"handles":false,"people":false,"public":true,"sets":[{"name":"followers",`},
		{"/robots.txt", "*/*", "text/plain; charset=utf-8", "User-agent"},
	} {
		status, header, body := get(t, srv.URL+test.path, test.accept)
		if got := header.Get("Content-Type"); got != test.contentType || !strings.HasPrefix(body, test.body) {
			t.Errorf("%s as %s: %s %.40q", test.path, test.accept, got, body)
		}
		if rest := `],"examples":[{"title":"x","q":"y"}],"service":"did:web:s"}`; test.path == "/page/config.json" && !strings.HasSuffix(strings.TrimSpace(body), rest) {
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
	if size > 100_000 {
		t.Errorf("the page has %d bytes, more than 100 KB", size)
	}
}

// Viewers receive the newest sample, and if they ask, the rates of the last quarter of an hour. A failed sample is
// skipped. After several in a row, viewers learn that the state is unknown.
func TestLive(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	next := samples()
	synctest.Test(t, func(t *testing.T) {
		l := NewLive(func(ctx context.Context) (Sample, error) {
			if failing.Load() {
				return Sample{}, errors.New("the store is damaged")
			}
			return next(ctx)
		})
		ask := func(path string) (m message, code int) {
			w := httptest.NewRecorder()
			l.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code == http.StatusOK {
				must(t, json.Unmarshal(w.Body.Bytes(), &m))
			}
			return m, w.Code
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = l.Run(ctx) }()
		synctest.Wait()
		if _, code := ask("/live"); code != http.StatusServiceUnavailable {
			t.Errorf("before the first sample: %d", code)
		}
		failing.Store(false)
		time.Sleep((history + 5) * time.Second)
		synctest.Wait()
		m, _ := ask("/live?history")
		if n := int64(history + 5); m.Number != n || m.Edges != 5*n || m.EventRate != 10 || m.EdgeRate != 5 || len(m.History.Events) != history || len(m.History.Edges) != history || m.State != "live" {
			t.Errorf("%+v", m)
		}
		failing.Store(true)
		for i := range 4 {
			time.Sleep(time.Second)
			synctest.Wait()
			was := m
			if m, _ = ask("/live"); m.History != nil || m.Edges != was.Edges || (m.State == "unknown") != (i >= failures-1) || (m.Number > was.Number) != (i >= failures-1) {
				t.Errorf("after %d failures: %+v", i+1, m)
			}
		}
		failing.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if m, _ = ask("/live"); m.State != "live" || m.EventRate != 2 { // ten events in five seconds
			t.Errorf("the rate after an outage must cover the whole outage: %+v", m)
		}
		stop()
	})
}

// An unchanged file is not sent again, and a client that cannot unpack gets it plain.
func TestFiles(t *testing.T) {
	srv := httptest.NewServer(Handler(http.NotFoundHandler(), NewLive(samples()), Options{}))
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
