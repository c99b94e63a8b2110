package clients

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the proxies whose word about their clients' addresses counts.
type Proxies []netip.Prefix

// ParseProxies parses a list of networks and addresses, separated by commas.
func ParseProxies(list string) (p Proxies, err error) {
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			addr, addrErr := netip.ParseAddr(part)
			if addrErr != nil {
				return nil, fmt.Errorf("%q is neither a network, such as 10.0.0.0/8, nor an address", part) //nolint:err113 // the operator reads it
			}
			addr = addr.Unmap()
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		p = append(p, prefix.Masked())
	}
	return p, nil
}

func (p Proxies) has(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// address returns the address that sent a request: that of the connection, or, if that is a
// trusted proxy's, the last address in X-Forwarded-For or Forwarded that is not. Each proxy
// appends the address that it heard from, so only what trusted proxies appended is believed. If
// both headers are sent, or one cannot be read that far, the client is the proxy itself.
func (p Proxies) address(r *http.Request) (addr netip.Addr, ok bool) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return addr, false
	}
	addr = at.Addr().Unmap().WithZone("")
	if !p.has(addr) {
		return addr, true
	}
	list, standard := r.Header.Values("X-Forwarded-For"), r.Header.Values("Forwarded")
	if len(list) > 0 && len(standard) > 0 {
		return addr, true
	}
	hops := strings.Split(strings.Join(append(list, standard...), ","), ",")
	for _, hop := range slices.Backward(hops) {
		hop = strings.TrimSpace(hop)
		if len(standard) > 0 {
			hop = forwardedFor(hop)
		}
		next, ok := parseHop(hop)
		if !ok {
			break
		}
		if addr = next; !p.has(addr) {
			break
		}
	}
	return addr, true
}

// forwardedFor returns the for parameter of an element of a Forwarded header (RFC 7239).
func forwardedFor(element string) string {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
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
func (p Proxies) ClientAt(remote string) string {
	addr, ok := Proxies(nil).address(&http.Request{RemoteAddr: remote})
	switch {
	case !ok:
		return remote
	case p.has(addr):
		return ""
	}
	return nameOf(addr)
}

// nameOf returns the name of the client with an address.
func nameOf(addr netip.Addr) string {
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return addr.String()
	}
	return prefix.String()
}
