package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// writeCertificate writes a certificate for 127.0.0.1 with a serial number, and its key, and returns
// a pool with it.
func writeCertificate(t *testing.T, cert, key string, serial int64) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "skein test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// A daemon with TLS, rates, tokens and a trusted proxy serves each client what it may ask, and
// reloads tokens and certificate on SIGHUP.
func TestClientsOfDaemon(t *testing.T) {
	needsHangup(t)
	dir := t.TempDir()
	cert, key, tokens := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "tokens")
	pool := writeCertificate(t, cert, key, 1)
	code, line, token := skein(t, "token", "app", "rate=1000")
	if code != 0 || !strings.HasPrefix(line, "app ") || !strings.HasPrefix(token, "skein_") {
		t.Fatal(code, line, token)
	}
	token = strings.TrimSpace(token)
	if err := os.WriteFile(tokens, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", filepath.Join(dir, "store"), "--rate", "0.5", "--tokens", tokens,
		"--trusted-proxies", "X-Forwarded-For=127.0.0.0/8", "--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(d.api, "https://") {
		t.Fatalf("the API is at %s", d.api)
	}
	var serial string
	get := func(pool *x509.CertPool, headers ...string) (status int, retry string) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.api+"/xrpc/blue.skein.graph.getStats", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		serial = resp.TLS.PeerCertificates[0].SerialNumber.String()
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	for i := range 5 { // the burst of --rate 0.5
		if code, _ := get(pool, "X-Forwarded-For", "192.0.2.1"); code != http.StatusOK {
			t.Fatalf("request %d: %d", i, code)
		}
	}
	if code, retry := get(pool, "X-Forwarded-For", "192.0.2.1"); code != http.StatusTooManyRequests || retry == "" {
		t.Errorf("above the rate: %d, Retry-After %q", code, retry)
	}
	if code, _ := get(pool, "X-Forwarded-For", "192.0.2.1, 192.0.2.2"); code != http.StatusOK {
		t.Errorf("another client of the proxy: %d", code)
	}
	for range 20 {
		if code, _ := get(pool, "X-Forwarded-For", "192.0.2.1", "Authorization", "Bearer "+token); code != http.StatusOK {
			t.Fatalf("with a token: %d", code)
		}
	}
	if code, _ := get(pool, "Authorization", "Bearer skein_unknown"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", code)
	}
	ws, resp, err := (&websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool}}).DialContext(t.Context(), "wss"+strings.TrimPrefix(d.api, "https")+
		"/xrpc/blue.skein.graph.subscribe?set=followers(did:web:a.example)", http.Header{"Skein-Token": {token}})
	if err != nil {
		t.Fatalf("a subscription: %v", err)
	}
	_ = resp.Body.Close()
	_ = ws.Close()

	renewed := writeCertificate(t, cert, key, 2)
	if err := os.WriteFile(tokens, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "SIGHUP reloads the files", func() bool { return strings.Contains(d.log.String(), "SIGHUP: TLS certificate reloaded") })
	if code, _ := get(renewed, "Authorization", "Bearer "+token); code != http.StatusUnauthorized || serial != "2" {
		t.Errorf("after the reload: %d, certificate %s", code, serial)
	}
	if err := os.WriteFile(tokens, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cert, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "a file with an error changes nothing, and the log says so", func() bool {
		return strings.Contains(d.log.String(), "keeping the previous tokens") && strings.Contains(d.log.String(), "serving the previous one")
	})
	if code, _ := get(renewed, "X-Forwarded-For", "192.0.2.3"); code != http.StatusOK || serial != "2" {
		t.Errorf("after a reload with errors: %d, certificate %s", code, serial)
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
