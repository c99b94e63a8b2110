package identities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// service starts a service that resolves handles.
func service(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestService(t *testing.T) {
	var asked atomic.Int32
	client, leave := context.WithCancel(ForClient(t.Context(), "a client"))
	url := service(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/xrpc/com.atproto.identity.resolveHandle" {
			t.Errorf("request to %s", r.URL)
		}
		switch r.FormValue("handle") {
		case "alice.example.com":
			fmt.Fprint(w, `{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}`)
		case "nobody.example.com":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"InvalidRequest","message":"Unable to resolve handle"}`)
		case "liar.example.com":
			fmt.Fprint(w, `{"did":"not a DID) or follows("}`)
		case "busy.example.com":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "slow.example.com":
			leave()
			select {
			case <-r.Context().Done():
			case <-time.After(100 * time.Millisecond):
				fmt.Fprint(w, `{"did":"did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"}`)
			}
		}
	})
	r, err := New(Options{Resolver: url})
	must(t, err)
	if did, err := r.Resolve(client, "slow.example.com"); did == "" || err != nil {
		t.Errorf("a look-up ended with the request of the client who started it: %v", err)
	}
	for range 2 {
		for handle, want := range map[string]error{"Alice.example.com": nil, "nobody.example.com": ErrNotFound, "liar.example.com": ErrFailed, "busy.example.com": ErrFailed} {
			did, err := r.Resolve(t.Context(), handle)
			if !errors.Is(err, want) || err == nil && did != "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa" || err != nil && did != "" {
				t.Errorf("%s: %q, %v", handle, did, err)
			}
		}
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("%d requests for five handles: answers are not cached", n)
	}
	if did, known, err := r.Kept("alice.example.com"); did == "" || !known || err != nil {
		t.Errorf("cached: %q, %v, %v", did, known, err)
	}
}

// known is a directory of DID documents.
type known struct {
	keyDirectory
	asked   int
	handles map[string]string
}

func (k *known) LookupDID(_ context.Context, did syntax.DID) (*identity.Identity, error) {
	k.asked++
	switch handle, ok := k.handles[did.String()]; {
	case !ok:
		return nil, identity.ErrDIDNotFound
	case handle == "unreachable":
		return nil, identity.ErrDIDResolutionFailed
	default:
		return &identity.Identity{DID: did, AlsoKnownAs: []string{handle}}, nil
	}
}

// A DID has the handle of its document if that leads back to it. Documents are kept, and so are failures to read one.
func TestHandleOf(t *testing.T) {
	leads := map[string]string{"alice.example.com": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "bob.example.com": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}
	url := service(t, func(w http.ResponseWriter, r *http.Request) {
		if leads[r.FormValue("handle")] == "" {
			w.WriteHeader(http.StatusBadGateway)
		}
		fmt.Fprintf(w, `{"did":%q}`, leads[r.FormValue("handle")])
	})
	d := &known{handles: map[string]string{
		"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa": "at://Alice.example.com", "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb": "at://bob.example.com",
		"did:plc:cccccccccccccccccccccccc": "https://example.com", "did:plc:dddddddddddddddddddddddd": "at://down.example.com", "did:plc:eeeeeeeeeeeeeeeeeeeeeeee": "unreachable",
	}}
	r, err := New(Options{Resolver: url, Directory: d})
	must(t, err)
	for range 2 {
		for did, want := range map[string]string{
			"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa": "alice.example.com", "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb": "", "did:plc:cccccccccccccccccccccccc": "",
			"did:plc:dddddddddddddddddddddddd": "", "did:plc:eeeeeeeeeeeeeeeeeeeeeeee": "", "did:plc:ffffffffffffffffffffffff": "",
		} {
			if handle, err := r.HandleOf(t.Context(), did); handle != want || (err == nil) != (want != "") {
				t.Errorf("%s: %q, %v", did, handle, err)
			}
		}
	}
	if d.asked != 6 {
		t.Errorf("%d documents were read, want one for each account", d.asked)
	}
	leads["alice.example.com"] = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"
	r.found.Remove("alice.example.com") // ten minutes after it was asked for
	if handle, err := r.HandleOf(t.Context(), "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"); !errors.Is(err, ErrNotFound) {
		t.Errorf("it has moved: %q, %v", handle, err)
	}
	r, err = New(Options{Resolver: "off"})
	must(t, err)
	if _, err := r.HandleOf(t.Context(), "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"); !errors.Is(err, ErrOff) {
		t.Error(err)
	}
}

func TestPrivate(t *testing.T) {
	r, err := New(Options{})
	must(t, err)
	r.direct.Resolver.PreferGo = true
	if _, err := r.Resolve(t.Context(), "skein.localhost"); err == nil {
		t.Error("a handle at a private address was resolved")
	}
	r, err = New(Options{Resolver: "off"})
	must(t, err)
	if _, err := r.Resolve(t.Context(), "alice.example.com"); !errors.Is(err, ErrOff) {
		t.Error(err)
	}
	if _, err := New(Options{Resolver: "ftp://example.com"}); err == nil {
		t.Error("ftp was accepted")
	}
}
