// Package outward connects to addresses that come from strangers: documents of DIDs,
// handles, redirects. An address that is none of the public internet is not connected to,
// whatever named it, so that nobody has this process ask its own network for them
// (server-side request forgery).
package outward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrPrivate is returned for an address that a stranger names and that is none of the
// public internet.
var ErrPrivate = errors.New("the host is at a private address, which is not asked (--allow-private-hosts)")

// Options say what a client connects to.
type Options struct {
	// Trusted are addresses, as URLs, that the operator named: they are connected to
	// wherever they are.
	Trusted []string
	// AllowPrivate has private addresses connected to, too.
	AllowPrivate bool
	// HeaderTimeout bounds the wait for an answer. 0 means 10 seconds.
	HeaderTimeout time.Duration
	// PerHost is how many idle connections to one host are kept.
	PerHost int
}

// NewClient returns a client. Whatever a name resolves to is looked at when it is connected
// to, so that a redirect, or a name that resolves to something else the second time, is no
// way around.
func NewClient(o Options) *http.Client {
	if o.HeaderTimeout <= 0 {
		o.HeaderTimeout = 10 * time.Second
	}
	trusted := map[string]bool{}
	for _, address := range o.Trusted {
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
				if o.AllowPrivate || trusted[address] {
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

// PublicHost reports whether a host, with or without a port, has a name or an address of the
// public internet. It looks nothing up: names that are reserved for private use are not public
// (RFC 6761, RFC 6762, RFC 8375).
func PublicHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return isPublic(a)
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	last := labels[len(labels)-1]
	return len(labels) > 1 && !slices.Contains([]string{"localhost", "local", "internal", "lan", "home", "arpa", "test", "example", "invalid", "onion"}, last)
}

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

// Documents returns a client, as c is, for documents: answers end after so many bytes and
// so much time.
func Documents(c *http.Client, most int64, timeout time.Duration) *http.Client {
	return &http.Client{Transport: bounded{c.Transport, most}, CheckRedirect: c.CheckRedirect, Timeout: timeout}
}

// bounded bounds the bodies of answers.
type bounded struct {
	http.RoundTripper

	most int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, b.most), resp.Body}
	}
	return resp, err //nolint:wrapcheck // it is the transport
}
