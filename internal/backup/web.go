package backup

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"skein.blue/internal/outward"
)

// web is a folder or bucket that somebody publishes over HTTPS. It needs ranges, and no lists.
type web struct {
	base   *url.URL
	client *http.Client
}

func openWeb(u *url.URL) (Target, error) {
	if u.Scheme == "http" {
		if at, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !at.IsLoopback()) {
			return nil, fmt.Errorf("%w: %s: http:// is for loopback only; use https://", ErrTarget, u.Redacted())
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
func (t *web) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	at := t.base.JoinPath(name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err)
	}
	req.Header.Set("Accept-Encoding", "identity") // ranges and sizes are of the object
	if from > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	res, err := t.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err)
	}
	switch {
	case res.StatusCode == http.StatusPartialContent && from > 0:
		return res.Body, nil
	case res.StatusCode == http.StatusOK:
		if _, err := io.CopyN(io.Discard, res.Body, from); err != nil { // the server has no ranges
			_ = res.Body.Close() // it was only read
			return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err)
		}
		return res.Body, nil
	}
	_ = res.Body.Close() // it was only read
	err = fmt.Errorf("reading %s: the server answered %s", at.Redacted(), res.Status)
	if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusGone {
		err = fmt.Errorf("%w: %w", err, ErrNotFound) // a bucket that may not be listed forbids what it lacks
	}
	return nil, err
}

// Put implements Target.
func (t *web) Put(context.Context, string, int64, io.Reader) error {
	return fmt.Errorf("%s: %w", t, ErrReadOnly)
}

// Claim implements Target.
func (t *web) Claim(context.Context, string, []byte) error {
	return fmt.Errorf("%s: %w", t, ErrReadOnly)
}

// Delete implements Target.
func (t *web) Delete(context.Context, string) error { return fmt.Errorf("%s: %w", t, ErrReadOnly) }
