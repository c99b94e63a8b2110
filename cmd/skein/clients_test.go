package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", filepath.Join(dir, "store"), "--rate", "0.5", "--tokens", tokens,
		"--trusted-proxies", "X-Forwarded-For=127.0.0.0/8")
	get := func(headers ...string) (status int, retry string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.api+"/xrpc/blue.skein.graph.getStats", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
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

	if err := os.WriteFile(tokens, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "SIGHUP reloads the tokens", func() bool { return strings.Contains(d.log.String(), "SIGHUP: tokens reloaded") })
	if code, _ := get("Authorization", "Bearer "+token); code != http.StatusUnauthorized {
		t.Errorf("after the reload: %d", code)
	}
	if err := os.WriteFile(tokens, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "a file with an error changes nothing, and the log says so", func() bool {
		return strings.Contains(d.log.String(), "keeping the previous tokens")
	})
	if code, _ := get("X-Forwarded-For", "192.0.2.3"); code != http.StatusOK {
		t.Errorf("after a reload with errors: %d", code)
	}
	d.stop()
}

// skein query waits when the server limits its rate, and sends a token, for limits of its own.
func TestQueryWithinTheRate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	if code, _, errs := skein(t, "replay", "--frames", plainPDS, "--store", store); code != 0 {
		t.Fatal(errs)
	}
	code, line, token := skein(t, "token", "me", "rate=0")
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", store, "--rate", "0.5", "--tokens", tokens, "--consume=false")
	ask := func(args ...string) (int, string, string) {
		t.Helper()
		return skein(t, append([]string{"query", "--server", d.api, "--count", "follows(did:plc:6tnmqzyj3aj56cfk2uw7mi5e)"}, args...)...)
	}
	waited := false
	for range 7 { // the burst is 5
		code, out, errs := ask()
		if code != 0 || strings.TrimSpace(out) == "" {
			t.Fatalf("%d %s%s", code, out, errs)
		}
		waited = waited || strings.Contains(errs, "RateLimitExceeded") && strings.Contains(errs, "continuing in")
	}
	if !waited {
		t.Error("seven queries at once stayed within a rate of one in two seconds")
	}
	for range 7 {
		if code, out, errs := ask("--token", strings.TrimSpace(token)); code != 0 || errs != "" {
			t.Fatalf("with a token: %d %s%s", code, out, errs)
		}
	}
	if code, _, errs := ask("--token", "skein_unknown"); code == 0 || !strings.Contains(errs, "InvalidToken") {
		t.Errorf("with an unknown token: %d %s", code, errs)
	}
	d.stop()
}
