package backup

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"

	"skein.blue/internal/outward"
)

// web is a folder or bucket that somebody publishes over HTTPS. It has no lists.
type web struct {
	base   *url.URL
	client *http.Client
}

func openWeb(u *url.URL) (Target, error) {
	if u.Scheme == "http" {
		if at, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !at.IsLoopback()) {
			return nil, fmt.Errorf("%s: http:// is for loopback only; use https://", u.Redacted())
		}
	}
	client := outward.NewClient(outward.Options{Trusted: []string{u.String()}})
	client.Transport = outward.Paced(client.Transport, pace)
	return &web{base: u, client: client}, nil
}

// String implements Target.
func (t *web) String() string { return t.base.Redacted() }

// List implements Target.
func (t *web) List(context.Context, string) (map[string]int64, error) {
	return nil, fmt.Errorf("%s: %w", t, ErrReadOnly)
}

// Get implements Target.
func (t *web) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	at := t.base.JoinPath(name)
	fail := func(err error) (io.ReadCloser, error) { return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err) }
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Accept-Encoding", "identity") // sizes are of the object
	res, err := t.client.Do(req)
	if err != nil {
		return fail(err)
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	_ = res.Body.Close() // it was only read
	err = fmt.Errorf("the server answered %s", res.Status)
	if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusGone {
		err = fmt.Errorf("%w: %w", err, ErrNotFound) // a bucket that may not be listed forbids what it lacks
	}
	return fail(err)
}

// Put implements Target.
func (t *web) Put(context.Context, string, int64, io.Reader, bool) error {
	return fmt.Errorf("%s: %w", t, ErrReadOnly)
}

// Delete implements Target.
func (t *web) Delete(context.Context, string) error { return fmt.Errorf("%s: %w", t, ErrReadOnly) }
