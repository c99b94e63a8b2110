// Package outward connects to addresses that come from strangers: DID documents, handles,
// redirects. It never connects to an address outside the public internet, so that nobody can use
// this process to reach its private network (server-side request forgery).
package outward

import (
	"cmp"
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

// ErrPrivate is returned for a stranger's address outside the public internet.
var ErrPrivate = errors.New("the host has a private address; see --allow-private-hosts")

// Options say what a client connects to.
type Options struct {
	// Trusted are URLs that the operator configured. The client connects to them even at private
	// addresses.
	Trusted []string
	// AllowPrivate allows all private addresses.
	AllowPrivate bool
	// HeaderTimeout bounds the wait for an answer. 0 means 10 seconds.
	HeaderTimeout time.Duration
	// PerHost is how many idle connections to one host are kept.
	PerHost int
}

// Page is where somebody who finds skein in a log can read what it is.
const Page = "https://skein.blue"

// userAgent is what a server receives unless the request says more.
const userAgent = "skein (+" + Page + ")"

// Named returns a transport whose requests say who asks, if they do not say so themselves.
func Named(t http.RoundTripper) http.RoundTripper { return named{t} }

type named struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n named) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("User-Agent") == "" {
		req = req.Clone(req.Context()) // a transport must not change its request
		req.Header.Set("User-Agent", userAgent)
	}
	return n.RoundTripper.RoundTrip(req) // a transport must not wrap
}

// NewClient returns a client, Named. It checks the resolved address at the time of connecting, so
// neither a redirect nor a name that resolves differently the second time can evade the check.
func NewClient(o Options) *http.Client {
	return &http.Client{
		Transport: Named(&http.Transport{
			DialContext:            Dialer(o),
			TLSHandshakeTimeout:    10 * time.Second,
			ResponseHeaderTimeout:  cmp.Or(o.HeaderTimeout, 10*time.Second),
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           1024,
			MaxIdleConnsPerHost:    o.PerHost,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true, // count the bytes that a host sends
			ForceAttemptHTTP2:      true,
		}),
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.Method != via[0].Method { // a POST would be repeated as a GET without its body
				return http.ErrUseLastResponse
			}
			if len(via) >= 5 {
				return errors.New("more than five redirects")
			}
			if req.URL.Scheme != "https" && req.URL.Scheme != via[0].URL.Scheme {
				return fmt.Errorf("redirect from %s to %s", via[0].URL.Scheme, req.URL.Scheme)
			}
			return nil
		},
	}
}

// Dialer returns the function by which a client connects.
func Dialer(o Options) func(ctx context.Context, network, address string) (net.Conn, error) {
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
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if o.AllowPrivate || trusted[address] {
			return plain.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
}

// hostPort returns the address to dial for a URL.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" || u.Scheme == "ws" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// global6 is all of IPv6 that IANA allocates as global unicast. Whatever lies outside may mean an IPv4 address, such as
// ::10.0.0.1 and ::ffff:0:10.0.0.1, or what a network makes of it.
var global6 = netip.MustParsePrefix("2000::/3")

// notPublic are the ranges of IPv4, and of global6, in the IANA special-purpose address registries: private and shared
// networks, loopback, link-local, multicast, protocol assignments, documentation, benchmarking, 6to4, and reserved
// ranges. The last one of IPv4 is what every machine in Azure reaches its host by.
var notPublic = func() (all []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3", "168.63.129.16/32",
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}()

// PublicHost reports whether a host, with or without a port, has a public name or address. It
// does not resolve names: names reserved for private use are not public (RFC 6761, RFC 6762,
// RFC 8375).
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

// isPublic reports whether an address belongs to the public internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	return (a.Is4() || global6.Contains(a)) && !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Documents returns a copy of c for documents, which limits the size and the time of answers.
func Documents(c *http.Client, most int64, timeout time.Duration) *http.Client {
	return &http.Client{Transport: bounded{c.Transport, most}, CheckRedirect: c.CheckRedirect, Timeout: timeout}
}

// bounded limits the size of answers: reading a larger one fails.
type bounded struct {
	http.RoundTripper

	most int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = boundedBody{http.MaxBytesReader(nil, resp.Body, b.most)}
	}
	return resp, err // a transport must not wrap
}

type boundedBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b boundedBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	if large, is := errors.AsType[*http.MaxBytesError](err); is {
		err = fmt.Errorf("the document has more than %d bytes", large.Limit)
	}
	return n, err
}
