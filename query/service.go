package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/internal/clients"
	"skein.blue/internal/identities"
	"skein.blue/query/feed"
	"skein.blue/query/xrpc"
)

// The entries of the service's DID document, for queries and for feeds. A client names one of them
// to its PDS (atproto-proxy: did:web:HOST#skein_graph), and tokens are addressed to them.
const (
	graphEntry = "#skein_graph"
	feedEntry  = "#bsky_fg"
)

// verifyTimeout bounds the check of a token: the viewer's key may have to be fetched from a slow
// host.
const verifyTimeout = 5 * time.Second

// A Service is the server's public identity. It has a DID and a DID document, and identifies
// viewers by service auth tokens.
type Service struct {
	host   string
	tokens *identities.Tokens
	slots  *clients.Queue // of checks of signatures
}

// NewService returns a Service whose DID is did:web:HOST. host is the server's public HTTPS name; localhost uses plain HTTP, as
// in resolvers of did:web. d finds the DID documents with the viewers' keys, which the Service caches.
func NewService(host string, d identity.Directory) (*Service, error) {
	if host == "" || strings.ContainsAny(host, "/ ") {
		return nil, fmt.Errorf("%q is not a host name; give the public name of this server, such as graph.example.com", host)
	}
	v := &Service{host: host, slots: clients.NewQueue((runtime.GOMAXPROCS(0) + 1) / 2)}
	if _, err := syntax.ParseDID(v.DID()); err != nil {
		return nil, fmt.Errorf("%q cannot be used in a did:web: %w", host, err)
	}
	v.tokens = identities.NewTokens(v.DID(), identities.NewKeys(d))
	return v, nil
}

// DID returns the DID of the service. A port is percent-encoded, as in did:web.
func (v *Service) DID() string { return "did:web:" + strings.ReplaceAll(v.host, ":", "%3A") }

// viewer returns the DID of the viewer who calls a method, from the token of the request.
func (v *Service) viewer(ctx context.Context, client, nsid, header string) (string, error) {
	entry := graphEntry // which the token is addressed to
	if strings.HasPrefix(nsid, feed.Methods) {
		entry = feedEntry
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", xrpc.Errorf(http.StatusUnauthorized, "AuthMissing", "the answer depends on the viewer: send a service auth token (Authorization: Bearer …) with aud %s%s and lxm %s, or ask through your PDS (atproto-proxy: %[1]s%[2]s)", v.DID(), entry, nsid)
	}
	ctx, cancel := context.WithTimeout(identities.ForClient(ctx, client), verifyTimeout)
	defer cancel()
	did, err := v.tokens.Verify(ctx, strings.TrimSpace(token), entry, nsid, func(ctx context.Context) (func(), error) {
		err := v.slots.Enter(ctx, client)
		began := time.Now()
		return func() { v.slots.Leave(client, began) }, err
	})
	switch {
	case err == nil:
		return did.String(), nil
	case errors.Is(err, identities.ErrReplayed):
		return "", xrpc.Errorf(http.StatusUnauthorized, "JwtReplayed", "%v", err)
	case errors.Is(err, identities.ErrTooMany):
		return "", xrpc.Errorf(http.StatusTooManyRequests, "RateLimitExceeded", "%v: wait until some have expired", err)
	case errors.Is(err, identities.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return "", xrpc.Errorf(http.StatusServiceUnavailable, "Busy", "the token could not be checked within %v: %v; try again", verifyTimeout, err)
	case errors.Is(err, identities.ErrUnreachable):
		return "", xrpc.Errorf(http.StatusBadGateway, "UpstreamFailure", "the signing key of the token's issuer could not be looked up: %v", err)
	}
	return "", xrpc.Errorf(http.StatusUnauthorized, "BadJwt", "%v", err)
}

// didDocument serves the DID document of the service.
func (s *Server) didDocument(w http.ResponseWriter, r *http.Request) {
	v := s.o.Service
	if v == nil {
		http.NotFound(w, r)
		return
	}
	endpoint := "https://" + v.host
	if name, _, _ := strings.Cut(v.host, ":"); name == "localhost" {
		endpoint = "http://" + v.host
	}
	entry := func(id, is string) map[string]string {
		return map[string]string{"id": id, "type": is, "serviceEndpoint": endpoint}
	}
	entries := []map[string]string{entry(graphEntry, "SkeinGraph")}
	if s.o.Feeds != nil {
		entries = append(entries, entry(feedEntry, "BskyFeedGenerator"))
	}
	s.write(w, r, http.StatusOK, map[string]any{"@context": []string{"https://www.w3.org/ns/did/v1"}, "id": v.DID(), "service": entries})
}
