package main

import (
	"io"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"
)

// A daemon with rates, tokens and a trusted proxy serves each client what it may ask, and reloads
// the tokens on SIGHUP.
func TestClientsOfDaemon(t *testing.T) {
	needsHangup(t)
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	code, line, token := skein(t, "token", "app", "rate=1000")
	if code != 0 || !strings.HasPrefix(line, "app ") || !strings.HasPrefix(token, "skein_") {
		t.Fatal(code, line, token)
	}
	token = strings.TrimSpace(token)
	write(t, tokens, line)
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", filepath.Join(dir, "store"), "--rate", "0.5", "--tokens", tokens,
		"--trusted-proxies", "X-Forwarded-For=127.0.0.0/8")
	get := func(headers ...string) (status int, retry string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.api+"/xrpc/blue.skein.graph.getStats", nil)
		must(t, err)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	for i := range 5 { // the burst of --rate 0.5
		if code, _ := get("X-Forwarded-For", "192.0.2.1"); code != http.StatusOK {
			t.Fatalf("request %d: %d", i, code)
		}
	}
	if code, retry := get("X-Forwarded-For", "192.0.2.1"); code != http.StatusTooManyRequests || retry == "" {
		t.Errorf("above the rate: %d, Retry-After %q", code, retry)
	}
	if code, _ := get("X-Forwarded-For", "192.0.2.1, 192.0.2.2"); code != http.StatusOK {
		t.Errorf("another client of the proxy: %d", code)
	}
	for range 20 {
		if code, _ := get("X-Forwarded-For", "192.0.2.1", "Authorization", "Bearer "+token); code != http.StatusOK {
			t.Fatalf("with a token: %d", code)
		}
	}
	if code, _ := get("Authorization", "Bearer skein_unknown"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", code)
	}
	ws, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(d.api, "http")+
		"/xrpc/blue.skein.graph.subscribe?set=followers(did:web:a.example)", http.Header{"Skein-Token": {token}})
	if err != nil {
		t.Fatalf("a subscription: %v", err)
	}
	_ = resp.Body.Close()
	_ = ws.Close()

	write(t, tokens, "# none\n")
	d.signal(syscall.SIGHUP)
	d.logs("SIGHUP: reloaded")
	if code, _ := get("Authorization", "Bearer "+token); code != http.StatusUnauthorized {
		t.Errorf("after the reload: %d", code)
	}
	write(t, tokens, "nonsense\n")
	d.signal(syscall.SIGHUP)
	d.logs("keeping what it had before")
	if code, _ := get("X-Forwarded-For", "192.0.2.3"); code != http.StatusOK {
		t.Errorf("after a reload with errors: %d", code)
	}
	d.stop()
}

// skein query waits when the server limits its rate, and sends a token, for limits of its own. It prints handles beside members.
func TestQueryWithinTheRate(t *testing.T) {
	t.Parallel()
	asked := 0
	server, _ := listen(t, "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":"RateLimitExceeded","message":"later"}`)
			return
		}
		list := map[string]string{".query": `"total":9,"members":["MINE","stranger"]`, ".rank": `"items":[{"member":"at://MINE/x/1","count":2}]`}[path.Ext(r.URL.Path)]
		if r.FormValue("names") == "true" {
			list += `,"handles":{"MINE":"m.test"}`
		}
		_, _ = io.WriteString(w, strings.ReplaceAll("{"+list+"}", "MINE", r.Header.Get("Skein-Token")))
	}))
	code, out, errs := skein(t, "query", "--server", server, "--token", "mine", "followers("+known+")")
	if code != 0 || out != "mine\nstranger\n" || !strings.Contains(errs, "RateLimitExceeded: later; continuing in 1s") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	for _, test := range [][]string{
		{"mine\tm.test\nstranger\t\n", "text", "x"},
		{"at://mine/x/1\tm.test\t2\n", "text", "rank(x)"},
		{"member,handle,count\nat://mine/x/1,m.test,2\n", "csv", "rank(x)"},
		{`{"member":"mine","handle":"m.test"}` + "\n" + `{"member":"stranger"}` + "\n", "jsonl", "x"},
	} {
		if out := run(t, 0, "", "query", "--server", server, "--token", "mine", "--names", "--format", test[1], test[2]); out != test[0] {
			t.Errorf("%s with names: %q", test[1:], out)
		}
	}
}
