package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrPrivate is returned for an address that a stranger names and that is none of the
// public internet.
var ErrPrivate = errors.New("the host is at a private address, which is not asked (--allow-private-hosts)")

// newClient returns a client for addresses that come from strangers: documents of DIDs,
// and redirects. Whatever a name resolves to is looked at when it is connected to, so
// that a redirect, or a name that resolves to something else the second time, is no way
// around. What the operator named is asked wherever it is.
func newClient(o *Options) *http.Client {
	trusted := map[string]bool{}
	for _, address := range append([]string{o.PLC, o.Relay}, o.Hosts...) {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			trusted[hostPort(u)] = true
		}
	}
	guarded := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		if ap, err := netip.ParseAddrPort(address); err != nil || !isPublic(ap.Addr()) {
			return fmt.Errorf("%w: %s", ErrPrivate, address)
		}
		return nil
	}}
	plain := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if o.AllowPrivateHosts || trusted[address] {
					return plain.DialContext(ctx, network, address)
				}
				return guarded.DialContext(ctx, network, address)
			},
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  o.HeaderTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           1024,
			MaxIdleConnsPerHost:    o.PerHost,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true, // what a host sends is what is counted
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) >= 5 {
				return errors.New("more than five redirects")
			}
			if req.URL.Scheme != "https" && req.URL.Scheme != via[0].URL.Scheme {
				return fmt.Errorf("a redirect from %s to %s", via[0].URL.Scheme, req.URL.Scheme)
			}
			return nil
		},
	}
}

// hostPort returns what a connection to the URL is dialed to.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" || u.Scheme == "ws" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// notPublic are the ranges of the IANA registries of special addresses that netip does not
// name: carrier-grade NAT, protocol assignments, documentation, benchmarking, 6to4
// relays, the future's, and what maps or translates IPv4.
var notPublic = func() (all []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}()

// isPublic reports whether an address is one of the public internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// answer is an HTTP error of a host.
type answer struct {
	code    int
	name    string // of an XRPC error
	message string
	after   time.Duration // how long the host wants to be left alone, 0 if it does not say
}

// Error implements error.
func (a *answer) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP %d %s %s", a.code, a.name, a.message))
}

// answerOf reads the error of a response.
func answerOf(resp *http.Response) *answer {
	a := &answer{code: resp.StatusCode, after: retryAfter(resp.Header, time.Now())}
	var body struct{ Error, Message string }
	text, err := io.ReadAll(io.LimitReader(resp.Body, 2000))
	if err == nil && json.Unmarshal(text, &body) == nil {
		a.name, a.message = body.Error, body.Message
	}
	return a
}

// retryAfter returns how long a host wants to be left alone, by Retry-After or by the
// ratelimit headers of the reference PDS.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if s := h.Get("Retry-After"); s != "" {
		if n, err := strconv.Atoi(s); err == nil {
			return time.Duration(n) * time.Second
		}
		if t, err := http.ParseTime(s); err == nil {
			return t.Sub(now)
		}
	}
	if h.Get("Ratelimit-Remaining") == "0" {
		if n, err := strconv.ParseInt(h.Get("Ratelimit-Reset"), 10, 64); err == nil {
			if n > 1_000_000_000 { // a time, as the reference PDS sends; the draft says seconds
				return time.Unix(n, 0).Sub(now)
			}
			return time.Duration(n) * time.Second
		}
	}
	return 0
}

// idle is a body that must go on: a Read that takes longer than its time ends the request.
type idle struct {
	io.Reader

	timer *time.Timer
	most  time.Duration
}

// Read implements io.Reader.
func (r *idle) Read(p []byte) (int, error) {
	r.timer.Reset(r.most)
	return r.Reader.Read(p) //nolint:wrapcheck // an io.Reader's
}
