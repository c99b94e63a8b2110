package app

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"skein.blue/internal/say"
)

// openPaths are the paths that the admin listener serves to everybody who reaches it: a
// kubelet's probes and Prometheus have no token, and their Host header is the pod's address.
var openPaths = []string{"/metrics", "/healthz", "/readyz"}

// An adminGuard decides which requests the admin listener serves. Its endpoints change the index
// (POST /car trusts the repo that it receives) and reveal the process (pprof), and a browser on
// the operator's machine lets any web page send requests to it.
//
//   - A browser names another site in Origin or Sec-Fetch-Site: the request is refused.
//   - A page whose name was rebound to 127.0.0.1 is same-origin to the browser, but its name
//     is in the Host header: a listener on loopback serves only names of loopback.
//   - Other machines reach a listener that is not on loopback: their requests need the token.
type adminGuard struct {
	next    http.Handler
	listens string // the address, as in --admin-listen
	host    string // its host, in lower case
	bound   netip.Addr
	token   *[sha256.Size]byte // hashed; nil if there is none
	refused func(r *http.Request, why string)
}

// guardAdmin returns a guard of next. listens is the configured address, bound the actual one.
// token is "" if there is none.
func guardAdmin(next http.Handler, listens string, bound net.Addr, token string, refused func(r *http.Request, why string)) *adminGuard {
	g := &adminGuard{next: next, listens: listens, refused: refused}
	if host, _, err := net.SplitHostPort(listens); err == nil {
		g.host = strings.ToLower(host)
	}
	if at, err := netip.ParseAddrPort(bound.String()); err == nil {
		g.bound = at.Addr().Unmap()
	}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		g.token = &sum
	}
	return g
}

// ServeHTTP implements http.Handler.
func (g *adminGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, why := g.judge(r)
	if status == http.StatusOK {
		g.next.ServeHTTP(w, r)
		return
	}
	g.refused(r, why)
	if status == http.StatusUnauthorized { // Basic is for browsers, and go tool pprof http://skein:TOKEN@…
		w.Header().Add("WWW-Authenticate", "Bearer")
		w.Header().Add("WWW-Authenticate", `Basic realm="skein"`)
	}
	w.Header().Set("Connection", "close") // the request's body is not read
	refuse(w, status, errors.New(why))
}

// judge returns 200 if the request may be served, else the status and the reason.
func (g *adminGuard) judge(r *http.Request) (status int, why string) {
	open := (r.Method == http.MethodGet || r.Method == http.MethodHead) && slices.Contains(openPaths, r.URL.Path)
	switch {
	case crossSite(r):
		return http.StatusForbidden, "the admin listener does not serve pages of other sites; open its address directly, or use curl"
	case g.hasToken(r):
		return http.StatusOK, ""
	case g.bound.IsLoopback() && !g.isLocal(r.Host):
		return http.StatusForbidden, "the admin listener does not serve the Host " + say.Line(r.Host) + "; use http://" + g.bound.String() + " or http://localhost (a proxy must send that Host, or the token)"
	case open:
		return http.StatusOK, ""
	case g.token != nil:
		return http.StatusUnauthorized, "the admin listener needs its token; set SKEIN_ADMIN_TOKEN or --admin-token-file as for skein serve (Authorization: Bearer TOKEN)"
	case g.bound.IsLoopback():
		return http.StatusOK, ""
	}
	return http.StatusForbidden, "the admin listener at " + g.listens + " is open to other machines without a token, so it serves only " + strings.Join(openPaths, ", ") +
		"; set SKEIN_ADMIN_TOKEN or --admin-token-file for skein serve and for this command, or listen on loopback (--admin-listen 127.0.0.1:3211)"
}

// crossSite reports whether a browser marked the request as coming from another site, whatever its method.
func crossSite(r *http.Request) bool {
	return new(http.CrossOriginProtection).Check(&http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host}) != nil
}

// isLocal reports whether a Host header names loopback, or the listener's own address.
func (g *adminGuard) isLocal(host string) bool {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return false
		}
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback() || ip.Unmap() == g.bound
	}
	return host == "localhost" || host != "" && host == g.host
}

// hasToken reports whether a request has the token: as a bearer token, or as the password of any
// user.
func (g *adminGuard) hasToken(r *http.Request) bool {
	if g.token == nil {
		return false
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, token, ok = r.BasicAuth()
	}
	sum := sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(sum[:], g.token[:]) == 1
}
