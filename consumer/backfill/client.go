package backfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"skein.blue/internal/say"

	"github.com/bluesky-social/indigo/atproto/identity"
	indigo "github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/internal/identities"
	"skein.blue/internal/outward"
)

// client asks hosts, the relay, and the sources of DID documents.
type client struct {
	o         *Options
	http      *http.Client
	directory identity.Directory

	trouble atomic.Pointer[string] // why a request is being retried
}

// newClient returns a client. Its HTTP client is for addresses from strangers, that is, from DID
// documents and redirects. It also connects to private addresses that the operator configured.
func newClient(o *Options) *client {
	hc := outward.NewClient(outward.Options{
		Trusted: []string{o.PLC, o.Relay}, AllowPrivate: o.AllowPrivateHosts, HeaderTimeout: o.HeaderTimeout, PerHost: o.PerHost,
	})
	hc.Transport = outward.Paced(hc.Transport, outward.Pace{Bytes: int64(float64(o.MinRate) * o.IdleTimeout.Seconds()), Within: o.IdleTimeout})
	return &client{o: o, http: hc, directory: o.LookUps.NewDirectory(o.PLC, hc)}
}

// get sends a request to a host. An HTTP error is an *outward.Answer.
func (c *client) get(ctx context.Context, host, method string, query url.Values, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/xrpc/"+method+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", host, err)
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the request
	}
	if resp.StatusCode != http.StatusOK {
		return nil, outward.AnswerOf(resp)
	}
	return resp, nil
}

// ask requests a small answer, and retries.
func (c *client) ask(ctx context.Context, host, method string, query url.Values, into any) error {
	var trouble *string
	defer func() {
		if trouble != nil {
			c.trouble.CompareAndSwap(trouble, nil)
		}
	}()
	for tries := 1; ; tries++ {
		err := c.askOnce(ctx, host, method, query, into)
		a, isAnswer := errors.AsType[*outward.Answer](err)
		if err == nil || ctx.Err() != nil || tries == c.o.Tries || isAnswer && a.IsFinal() || errors.Is(err, outward.ErrPrivate) {
			return err
		}
		trouble = new(fmt.Sprintf("%s does not answer; retrying (%d of %d tries): %s", host, tries, c.o.Tries, say.Short(err.Error())))
		c.trouble.Store(trouble)
		pause := backoff(tries, time.Second, time.Minute)
		if isAnswer {
			pause = max(pause, min(a.After, 10*time.Minute))
		}
		if err := outward.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

func (c *client) askOnce(ctx context.Context, host, method string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := c.get(ctx, host, method, query, "application/json")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 4<<20)).Decode(into); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", host, method, err)
	}
	return nil
}

// report adds the trouble to a Status.
func (c *client) report(st *Status) {
	if t := c.trouble.Load(); t != nil {
		st.Trouble = *t
	}
}

// resolve returns the address of an account's PDS from its DID document.
func (c *client) resolve(ctx context.Context, did string) (host string, err error) {
	ctx, cancel := context.WithTimeout(identities.ForRepos(ctx), 30*time.Second)
	defer cancel()
	ident, err := c.directory.LookupDID(ctx, indigo.DID(did))
	switch {
	case errors.Is(err, outward.ErrPrivate):
		return "", &failure{why: failPrivate, err: err, final: true}
	case errors.Is(err, identity.ErrDIDNotFound):
		return "", &failure{why: failNoDID, err: err}
	case errors.Is(err, identities.ErrBusy):
		return "", busyDirectory(fmt.Errorf("resolving the DID: %w", err))
	case errors.Is(err, identity.ErrDIDResolutionFailed) && indigo.DID(did).Method() == "plc":
		return "", busyDirectory(fmt.Errorf("the PLC directory %s does not answer (--plc names another): %w", c.o.PLC, err))
	case err != nil:
		return "", &failure{why: failIdentity, err: fmt.Errorf("resolving the DID: %w", err)}
	}
	address := ident.PDSEndpoint()
	u, err := url.Parse(address)
	if address == "" || err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !c.o.AllowPrivateHosts) {
		return "", &failure{why: failNoPDS, err: fmt.Errorf("its DID document names the PDS %q, and not an https:// address (--allow-private-hosts allows http://)", address), final: true}
	}
	return HTTPAddress(u.Scheme + "://" + u.Host), nil
}

// pageSize is how many repos to request in a page of a list, mostListed how many a page may have.
const (
	pageSize   = 1_000
	mostListed = 5_000
)

func pageQuery(cursor string) url.Values {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q
}

// listed is an entry of a list of repos.
type listed struct {
	DID    string
	Rev    string
	Active *bool
}

// A listPage is a page of a list of repos.
type listPage struct {
	Cursor string
	Repos  []listed
}

// more reports whether another page follows the one that cursor requested.
func (p *listPage) more(cursor string) bool {
	return p.Cursor != "" && len(p.Repos) > 0 && p.Cursor != cursor
}

// page requests a page of a host's list of repos.
func (c *client) page(ctx context.Context, host, cursor string) (p listPage, err error) {
	var text json.RawMessage
	if err := c.ask(ctx, host, "com.atproto.sync.listRepos", pageQuery(cursor), &text); err != nil {
		return p, err
	}
	if n := bytes.Count(text, []byte("{")) - 1; n > mostListed { // before they take memory: a host may send millions of empty ones
		return p, fmt.Errorf("a page of %s has %d repos, requested were %d", host, n, pageSize)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("a page of %s: %w", host, err)
	}
	return p, nil
}

// hostsOfRelay returns the addresses of the PDSes that the relay listens to, or the relay's
// own if it does not list them.
func (c *client) hostsOfRelay(ctx context.Context) (hosts []string, err error) {
	relay, scheme := c.o.Relay, "https://"
	if strings.HasPrefix(relay, "http://") && c.o.AllowPrivateHosts {
		scheme = "http://"
	}
	for cursor := ""; ; {
		var page struct {
			Cursor string
			Hosts  []struct{ Hostname, Status string }
		}
		err := c.ask(ctx, relay, "com.atproto.sync.listHosts", pageQuery(cursor), &page)
		if a, ok := errors.AsType[*outward.Answer](err); ok && a.IsFinal() && len(hosts) == 0 {
			c.o.Logger.Info("the relay does not list its hosts; reading its own list of repos", "relay", relay, "answer", a.Error())
			return []string{relay}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the hosts of %s: %w", relay, err)
		}
		for _, h := range page.Hosts {
			if h.Status != "banned" && h.Hostname != "" && !strings.ContainsAny(h.Hostname, "/@?# ") {
				hosts = append(hosts, scheme+h.Hostname)
			}
		}
		if page.Cursor == "" || len(page.Hosts) == 0 || page.Cursor == cursor {
			if len(hosts) == 0 { // which proves nothing
				hosts = []string{relay}
			}
			return hosts, nil
		}
		cursor = page.Cursor
	}
}
