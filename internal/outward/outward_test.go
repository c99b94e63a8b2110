package outward

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// must ends a test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1:248:1893:25c8:1946": true,
		"127.0.0.1": false, "::1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "fe80::1": false, "fd00::1": false,
		"0.0.0.0": false, "::": false, "100.64.0.1": false, "224.0.0.1": false, "255.255.255.255": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "198.18.0.1": false, "192.0.2.1": false, "2001:db8::1": false, "fec0::1": false,
		"::10.0.0.1": false, "::8.8.8.8": false, "::ffff:0:10.0.0.1": false, "::ffff:0:8.8.8.8": false, "64:ff9b:1::a00:1": false, "2001:0:a00:1::1": false, "fec0::1%eth0": false, "2606:4700::1%eth0": false, "4000::1": false, "1fff::1": false,
		"2000::1": true, "3ffe::1": true, "3fff:1000::1": true, "3fff::1": false, "5f00::1": false, "::ffff:8.8.8.8": true,
		"168.63.129.16": false, "168.63.129.15": true, "192.0.0.192": false, "100.100.100.200": false, "fd00:ec2::254": false, "223.255.255.255": true, "1.0.0.0": true, "172.32.0.1": true, "239.1.1.1": false, "255.0.0.1": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 { // no address of IPv6 outside of global unicast is public, but for what is one of IPv4
		b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, rng.Uint64()>>rng.IntN(65)), rng.Uint64()>>rng.IntN(65))
		if a := netip.AddrFrom16([16]byte(b)); a.Is6() && !a.Is4In6() && b[0]>>5 != 1 && isPublic(a) {
			t.Errorf("%v is public", a)
		}
	}
}

// A stranger's private address gets no request, not even by a redirect. The operator's addresses
// do.
func TestPrivateIsRefused(t *testing.T) {
	asked := 0
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer private.Close()
	redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, private.URL, http.StatusFound)
	}))
	defer redirecting.Close()
	get := func(c *http.Client, address string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		must(t, err)
		resp, err := c.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	guarded := NewClient(Options{Trusted: []string{redirecting.URL}})
	localhost := strings.Replace(private.URL, "127.0.0.1", "localhost", 1)
	for _, address := range []string{private.URL, localhost, redirecting.URL} {
		if err := get(guarded, address); !errors.Is(err, ErrPrivate) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if asked != 0 {
		t.Errorf("%d requests, want 0", asked)
	}
	for _, c := range []*http.Client{NewClient(Options{Trusted: []string{private.URL, redirecting.URL}}), NewClient(Options{AllowPrivate: true})} {
		must(t, get(c, redirecting.URL))
	}
	if asked != 2 {
		t.Errorf("%d requests, want 2", asked)
	}
}

// The host of a relay shows whether it is on the public network.
func TestPublicHost(t *testing.T) {
	for host, want := range map[string]bool{
		"relay1.us-west.bsky.network": true, "relay.fire.hose.cam:443": true, "RELAY.example.org.": true, "8.8.8.8": true, "8.8.8.8:80": true, "[2606:4700::1111]:443": true,
		"localhost": false, "localhost:2470": false, "127.0.0.1:4212": false, "[::1]:80": false, "10.1.2.3": false, "192.168.1.1:2470": false, "relay": false, "relay:2470": false,
		"relay.local": false, "relay.default.svc.cluster.local:2470": false, "relay.internal": false, "relay.test": false, "": false,
	} {
		if got := PublicHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// A document ends at its bound, however much a host sends, and a host that sends nothing more is
// given up.
func TestDocuments(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for chunk := make([]byte, 1000); r.Context().Err() == nil; {
			if r.URL.Path == "/hangs" {
				<-r.Context().Done()
				return
			}
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	c := Documents(NewClient(Options{AllowPrivate: true}), 5000, 300*time.Millisecond)
	get := func(path string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, endless.URL+path, nil)
		must(t, err)
		resp, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		b, err := io.ReadAll(resp.Body)
		return len(b), errors.Join(err, resp.Body.Close())
	}
	if n, err := get("/"); n != 5000 || err == nil || !strings.Contains(err.Error(), "more than 5000 bytes") {
		t.Errorf("an endless document: %d bytes, %v; want 5000, and an error", n, err)
	}
	began := time.Now()
	if _, err := get("/hangs"); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("a host that hangs: %v after %v", err, time.Since(began))
	}
}

// A server reads in each request, also in one after a redirect, where to learn what skein is. A request
// that says more about itself keeps that.
func TestRequestsNameThePage(t *testing.T) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.UserAgent())
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/to", http.StatusFound)
		}
	}))
	defer srv.Close()
	client := NewClient(Options{AllowPrivate: true})
	resp, err := client.Post(srv.URL, "text/plain", strings.NewReader("x"))
	must(t, err)
	must(t, resp.Body.Close())
	if len(got) != 1 || resp.StatusCode != http.StatusFound {
		t.Errorf("a POST that is redirected: %d, %d requests", resp.StatusCode, len(got))
	}
	for _, c := range []*http.Client{client, Documents(client, 10, time.Minute)} {
		for _, agent := range []string{"", "skein/1.2 (+" + Page + ")"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
			must(t, err)
			want := "skein (+https://skein.blue)"
			if agent != "" {
				req.Header.Set("User-Agent", agent)
				want = agent
			}
			got = nil
			resp, err := c.Do(req)
			must(t, err)
			must(t, resp.Body.Close())
			if len(got) != 2 || got[0] != want || got[1] != want {
				t.Errorf("%q, want %q", got, want)
			}
			if agent == "" && req.Header.Get("User-Agent") != "" {
				t.Error("the transport changed its request")
			}
		}
	}
}
