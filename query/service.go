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

	"skein.blue/internal/identities"
	"skein.blue/query/algebra"
)

// The entries of the service's DID document: what answers questions, and what serves feeds.
// A client's PDS is told one of them (atproto-proxy: did:web:HOST#skein_graph), and tokens
// are addressed to them.
const (
	graphEntry = "#skein_graph"
	feedEntry  = "#bsky_fg"
)

// verifyTimeout is how long a token may take to be checked: the key of who asks may have to
// be fetched from a host that is slow.
const verifyTimeout = 5 * time.Second

// ServiceOptions say who this server is.
type ServiceOptions struct {
	// Host is the name under which the world reaches this server over HTTPS: its DID is
	// did:web:HOST. As in resolvers of did:web, localhost is reached by plain HTTP.
	Host string
	// Directory finds the documents with the keys by which viewers prove who they are. What
	// it finds is kept here.
	Directory identity.Directory
}

// A Service is this server as others address it: it has a DID and a document of it, and
// knows viewers by service auth tokens.
type Service struct {
	host   string
	tokens *identities.Tokens
	slots  *queue // of signatures that are checked at a time
}

// NewService returns a Service.
func NewService(o ServiceOptions) (*Service, error) {
	if o.Host == "" || strings.ContainsAny(o.Host, "/ ") {
		return nil, fmt.Errorf("the service's host %q is not a host name: give the name under which this server is reached, such as graph.example.com", o.Host) //nolint:err113 // it is told to the operator
	}
	v := &Service{host: o.Host, slots: newQueue((runtime.GOMAXPROCS(0) + 1) / 2)}
	if _, err := syntax.ParseDID(v.DID()); err != nil {
		return nil, fmt.Errorf("the service's host %q makes no DID: %w", o.Host, err)
	}
	v.tokens = identities.NewTokens(v.DID(), identities.NewKeys(o.Directory))
	return v, nil
}

// DID returns the DID of the service. A port is written as a did:web has it.
func (v *Service) DID() string { return "did:web:" + strings.ReplaceAll(v.host, ":", "%3A") }

// endpoint is the address of the service.
func (v *Service) endpoint() string {
	if name, _, _ := strings.Cut(v.host, ":"); name == "localhost" {
		return "http://" + v.host
	}
	return "https://" + v.host
}

// document is the DID document of the service.
func (v *Service) document(feeds bool) any {
	entry := func(id, is string) map[string]string {
		return map[string]string{"id": id, "type": is, "serviceEndpoint": v.endpoint()}
	}
	entries := []map[string]string{entry(graphEntry, "SkeinGraph")}
	if feeds {
		entries = append(entries, entry(feedEntry, "BskyFeedGenerator"))
	}
	return map[string]any{"@context": []string{"https://www.w3.org/ns/did/v1"}, "id": v.DID(), "service": entries}
}

// entryOf returns the entry that tokens for a method are addressed to.
func entryOf(nsid string) string {
	if nsid == getFeedSkeleton {
		return feedEntry
	}
	return graphEntry
}

// viewer returns who asks a method, by the token of the request.
func (v *Service) viewer(ctx context.Context, client, nsid, header string) (string, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", &Error{http.StatusUnauthorized, "AuthMissing", fmt.Sprintf("the answer depends on who asks: send a service auth token (Authorization: Bearer …) with aud %s%s and lxm %s, or ask through your PDS (atproto-proxy: %[1]s%[2]s)", v.DID(), entryOf(nsid), nsid)}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	did, err := v.tokens.Verify(ctx, strings.TrimSpace(token), entryOf(nsid), nsid, func(ctx context.Context) (func(), error) {
		return v.slots.leave, v.slots.enter(ctx, client)
	})
	switch {
	case err == nil:
		return did.String(), nil
	case errors.Is(err, identities.ErrReplayed):
		return "", &Error{http.StatusUnauthorized, "JwtReplayed", err.Error()}
	case errors.Is(err, identities.ErrTooMany):
		return "", &Error{http.StatusTooManyRequests, "RateLimitExceeded", err.Error() + ": wait until some have expired"}
	case errors.Is(err, identities.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return "", &Error{http.StatusServiceUnavailable, "Busy", fmt.Sprintf("the token could not be checked within %v: %v; try again", verifyTimeout, err)}
	case errors.Is(err, identities.ErrUnreachable):
		return "", &Error{http.StatusBadGateway, "UpstreamFailure", "the signing key of the token's issuer could not be looked up: " + err.Error()}
	}
	return "", &Error{http.StatusUnauthorized, "BadJwt", err.Error()}
}

// asker is who asks one question, found out at most once: a token is good for one use.
type asker struct {
	asked bool
	did   string
	err   error
}

// viewer returns who asks. The question holds no slot meanwhile: nobody waits for the host
// of somebody else's keys.
func (s *Server) viewer(ctx context.Context, q *params) (string, error) {
	if s.o.Service == nil {
		return "", invalid("%s is who asks, and this server cannot know that: it has no name of its own (--service-host)", algebra.ViewerName)
	}
	if !q.asker.asked {
		q.asker.asked = true
		q.work.end()
		q.asker.did, q.asker.err = s.o.Service.viewer(ctx, q.work.client, q.nsid, q.header.Get("Authorization"))
		if err := q.work.enter(ctx, q.work.light); err != nil {
			return "", err
		}
	}
	return q.asker.did, q.asker.err
}

// personal is an answer that is one viewer's alone: no cache may give it to others.
type personal struct{ answer any }

// didDocument serves the DID document of the service.
func (s *Server) didDocument(w http.ResponseWriter, r *http.Request) {
	if s.o.Service == nil {
		http.NotFound(w, r)
		return
	}
	s.write(w, r, http.StatusOK, s.o.Service.document(s.o.Feeds != nil))
}
