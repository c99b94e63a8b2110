package app

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skein.blue/internal/sim/harness"
)

// countedBody counts how often it is read.
type countedBody struct{ reads int }

func (c *countedBody) Read(b []byte) (int, error) { c.reads++; return len(b), nil }

// adminRequest is a request to the admin listener.
type adminRequest struct {
	method, path, host string
	header             map[string]string
	body               *countedBody
}

func (a *adminRequest) send(t *testing.T, g *adminGuard) (status int, why string) {
	t.Helper()
	a.body = new(countedBody)
	r := httptest.NewRequestWithContext(t.Context(), a.method, "http://127.0.0.1:3211"+a.path, a.body)
	r.Host = a.host
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	var answer struct{ Error string }
	_ = json.NewDecoder(w.Body).Decode(&answer)
	return w.Code, answer.Error
}

func guardFor(t *testing.T, listens, bound, token string, served, refused *int) *adminGuard {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp", bound)
	must(t, err)
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *served++ })
	return guardAdmin(next, listens, at, token, func(*http.Request, string) { *refused++ })
}

var adminPaths = []string{"/", "/metrics", "/healthz", "/readyz", "/gaps", "/deadletters", "/resyncs", "/resync", "/backfill", "/car", "/debug/pprof/", "/debug/pprof/profile?seconds=30"}

// The admin listener refuses every request of a page whose name was rebound to 127.0.0.1 or that
// asks across sites: no endpoint runs, and no body is read.
func TestAbuseRebinding(t *testing.T) {
	var served, refused int
	g := guardFor(t, "127.0.0.1:3211", "127.0.0.1:3211", "", &served, &refused)
	hosts := []string{
		"evil.example", "evil.example:3211", "127.0.0.1.evil.example:3211", "localhost.evil.example", "evil.example.", "0.0.0.0:3211",
		"192.168.1.5:3211", "[2001:db8::1]:3211", "localhost@evil.example", "", "127.0.0.1:3211, evil.example", "xn--localhost", "128.0.0.1",
	}
	for i := range harness.Size(1, 1000) {
		hosts = append(hosts, fmt.Sprintf("r%d.rebind.example:3211", i))
	}
	local := []string{"127.0.0.1:3211", "localhost:3211", "[::1]:3211"}
	pages := []map[string]string{
		{"Origin": "https://evil.example"},
		{"Origin": "null"},
		{"Origin": "http://localhost:8080"},
		{"Origin": "http://127.0.0.1"},
		{"Sec-Fetch-Site": "cross-site"},
		{"Sec-Fetch-Site": "same-site"},
		{"Sec-Fetch-Site": "Cross-Site"},
		{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
	}
	tries, reads := 0, 0
	try := func(a adminRequest) {
		tries++
		if status, why := a.send(t, g); status != http.StatusForbidden || why == "" {
			t.Errorf("%+v: %d %q", a, status, why)
		}
		reads += a.body.reads
	}
	for _, path := range adminPaths {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			for _, host := range hosts { // the page is same-origin to the browser
				try(adminRequest{method: method, path: path, host: host, header: map[string]string{"Origin": "http://" + host, "Sec-Fetch-Site": "same-origin"}})
				try(adminRequest{method: method, path: path, host: host})
			}
			for _, host := range local {
				for _, header := range pages {
					try(adminRequest{method: method, path: path, host: host, header: header})
				}
			}
		}
	}
	if served > 0 || reads > 0 || refused != tries {
		t.Errorf("%d requests: %d served, %d bodies read, %d refusals reported", tries, served, reads, refused)
	}
	harness.Figure(t, "requests of pages / endpoints that ran / bodies read", "%d / %d / %d", tries, served, reads)
}

// On loopback the operator's tools are served under each of its names. Elsewhere requests without
// the token get only metrics and health, and requests with it everything, under any name.
func TestAdminGuard(t *testing.T) {
	const open, all = "/metrics", "/backfill"
	bearer := func(s string) map[string]string { return map[string]string{"Authorization": "Bearer " + s} }
	for _, c := range []struct {
		listens, bound, token string
		request               adminRequest
		status                int
		reason                string
	}{
		{"127.0.0.1:3211", "127.0.0.1:3211", "", adminRequest{method: "POST", path: "/car", host: "127.0.0.1:3211"}, 200, ""},
		{"127.0.0.1:3211", "127.0.0.1:3211", "", adminRequest{method: "GET", path: all, host: "LocalHost:9"}, 200, ""},
		{"127.0.0.1:3211", "127.0.0.1:3211", "", adminRequest{method: "GET", path: all, host: "127.8.9.1"}, 200, ""},
		{"[::1]:3211", "[::1]:3211", "", adminRequest{method: "GET", path: all, host: "[::1]:3211"}, 200, ""},
		{"ops.internal:3211", "127.0.1.1:3211", "", adminRequest{method: "GET", path: all, host: "Ops.internal:3211"}, 200, ""},
		{"127.0.0.1:3211", "127.0.0.1:3211", "", adminRequest{method: "GET", path: "/", host: "127.0.0.1:3211", header: map[string]string{"Sec-Fetch-Site": "none"}}, 200, ""},
		{"127.0.0.1:3211", "127.0.0.1:3211", "", adminRequest{method: "GET", path: "/gaps", host: "127.0.0.1:3211", header: map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:3211"}}, 200, ""},
		{"127.0.0.1:3211", "127.0.0.1:3211", "secret", adminRequest{method: "GET", path: all, host: "127.0.0.1:3211"}, 401, "SKEIN_ADMIN_TOKEN"},
		{"127.0.0.1:3211", "127.0.0.1:3211", "secret", adminRequest{method: "GET", path: all, host: "ops.example", header: bearer("secret")}, 200, ""}, // a proxy
		{":3211", "[::]:3211", "", adminRequest{method: "GET", path: "/healthz", host: "10.1.2.3:3211"}, 200, ""},
		{":3211", "[::]:3211", "", adminRequest{method: "GET", path: "/readyz", host: "10.1.2.3:3211"}, 200, ""},
		{":3211", "[::]:3211", "", adminRequest{method: "GET", path: open, host: "skein-admin.default.svc:3211"}, 200, ""},
		{":3211", "[::]:3211", "", adminRequest{method: "POST", path: open, host: "10.1.2.3:3211"}, 403, "--admin-token-file"},
		{":3211", "[::]:3211", "", adminRequest{method: "GET", path: "/metrics/../gaps", host: "10.1.2.3:3211"}, 403, "--admin-token-file"},
		{":3211", "[::]:3211", "", adminRequest{method: "POST", path: "/car", host: "127.0.0.1:3211"}, 403, "SKEIN_ADMIN_TOKEN"},
		{"0.0.0.0:3211", "0.0.0.0:3211", "", adminRequest{method: "GET", path: "/debug/pprof/", host: "localhost"}, 403, "serves only /metrics, /healthz, /readyz"},
		{"0.0.0.0:3211", "0.0.0.0:3211", "secret", adminRequest{method: "POST", path: "/car", host: "10.1.2.3", header: bearer("secret")}, 200, ""},
		{"0.0.0.0:3211", "0.0.0.0:3211", "secret", adminRequest{method: "POST", path: "/car", host: "10.1.2.3", header: map[string]string{"Authorization": "Basic eDpzZWNyZXQ="}}, 200, ""},
		{"0.0.0.0:3211", "0.0.0.0:3211", "secret", adminRequest{method: "POST", path: "/car", host: "10.1.2.3", header: bearer("secre")}, 401, "token"},
		{"0.0.0.0:3211", "0.0.0.0:3211", "secret", adminRequest{method: "POST", path: "/car", host: "10.1.2.3", header: bearer("")}, 401, "token"},
		{"0.0.0.0:3211", "0.0.0.0:3211", "secret", adminRequest{method: "GET", path: open, host: "10.1.2.3"}, 200, ""},
		{"0.0.0.0:3211", "0.0.0.0:3211", "secret", adminRequest{method: "GET", path: all, host: "10.1.2.3", header: map[string]string{"Authorization": "Basic eDpzZWNyZXQ=", "Sec-Fetch-Site": "cross-site"}}, 403, "other sites"},
	} {
		var served, refused int
		status, why := c.request.send(t, guardFor(t, c.listens, c.bound, c.token, &served, &refused))
		if status != c.status || !strings.Contains(why, c.reason) || (served == 1) != (status == 200) || (refused == 1) != (status != 200) {
			t.Errorf("%s at %s, token %q: %+v: %d %q", c.listens, c.bound, c.token, c.request, status, why)
		}
	}
}
