package clients

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Proxies are the networks of the proxies whose word about their clients' addresses counts, and the header in which
// they give it. There is only one, because a proxy passes on what a client sends in any other.
type Proxies struct {
	header   string // in canonical form
	networks []netip.Prefix
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// ParseProxies parses a header, an equals sign, and a list of networks and addresses, separated by commas.
func ParseProxies(value string) (p Proxies, err error) {
	header, list, ok := strings.Cut(value, "=")
	if !ok || !headerName.MatchString(header) {
		return p, fmt.Errorf("%q does not begin with the header in which the proxies name the client, as X-Forwarded-For=10.0.0.0/8,127.0.0.1 does", value)
	}
	if p.header = http.CanonicalHeaderKey(header); p.header == "Forwarded" {
		return p, errors.New("the header Forwarded is not read; have the proxies send X-Forwarded-For")
	}
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			addr, addrErr := netip.ParseAddr(part)
			if addrErr != nil {
				return p, fmt.Errorf("%q is neither a network, such as 10.0.0.0/8, nor an address", part)
			}
			addr = addr.Unmap()
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		p.networks = append(p.networks, prefix.Masked())
	}
	return p, nil
}

func (p *Proxies) has(addr netip.Addr) bool {
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// unnamed is the client of all requests in which a trusted proxy names nobody but proxies: its own, such as health
// checks, and forwarded ones without the header. They are not refused, because who asks on the proxy's machine
// sends such requests, too. They are not a proxy's, because a proxy is not a client: others could use up its limit.
const unnamed = "unnamed by a proxy"

// client returns the name of the client that sent a request: by the address of the connection or, if that is a trusted
// proxy's, by the last address in the header that is not. Each proxy appends the address that it heard from, so
// only what trusted proxies appended is believed.
func (p *Proxies) client(r *http.Request) string {
	addr, ok := parseHop(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr
	}
	if !p.has(addr) {
		return nameOf(addr)
	}
	hops := strings.Split(strings.Join(r.Header.Values(p.header), ","), ",")
	for _, hop := range slices.Backward(hops) {
		addr, ok := parseHop(strings.TrimSpace(hop))
		if !ok {
			break
		}
		if !p.has(addr) {
			return nameOf(addr)
		}
	}
	return unnamed
}

// parseHop parses an address, with or without a port, an IPv6 address also in brackets.
func parseHop(s string) (netip.Addr, bool) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap().WithZone(""), true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return addr.Unmap().WithZone(""), err == nil
}

// ClientAt returns the name of the client with a connection from the address "IP:port", and "" if
// that is a proxy's.
func (p *Proxies) ClientAt(remote string) string {
	if name := p.client(&http.Request{RemoteAddr: remote}); name != unnamed {
		return name
	}
	return ""
}

// nameOf returns the name of the client with an address.
func nameOf(addr netip.Addr) string {
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits) // fails for more bits than the address has
	return prefix.String()
}
