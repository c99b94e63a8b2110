package target

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"skein.blue/internal/outward"
)

// web is a folder or bucket that somebody publishes over HTTPS. It needs ranges, and no lists.
type web struct {
	base   *url.URL
	client *http.Client
}

// quiet is how long a server may send nothing.
var quiet = 30 * time.Second

func openWeb(u *url.URL) (Target, error) {
	if u.Scheme == "http" {
		if at, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !at.IsLoopback()) {
			return nil, fmt.Errorf("%w: %s: http:// is for loopback only; use https://", ErrURL, u.Redacted())
		}
	}
	return &web{base: u, client: outward.NewClient(outward.Options{Trusted: []string{u.String()}})}, nil
}

// String implements Target.
func (t *web) String() string { return t.base.Redacted() }

// List implements Target.
func (t *web) List(context.Context, string, func(Object) error) error {
	return fmt.Errorf("%s: %w", t, ErrReadOnly)
}

// Get implements Target.
func (t *web) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	at := t.base.JoinPath(name)
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err)
	}
	req.Header.Set("Accept-Encoding", "identity") // ranges and sizes are of the object
	if from > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	res, err := t.client.Do(req) //nolint:bodyclose // the answer closes it
	if err != nil {
		cancel()
		return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err)
	}
	body := &answer{cancel: cancel}
	body.IdleBody = outward.NewIdleBody(res.Body, quiet, func() { body.stalled.Store(true); cancel() })
	switch {
	case res.StatusCode == http.StatusPartialContent && from > 0:
		return body, nil
	case res.StatusCode == http.StatusOK:
		if _, err := io.CopyN(io.Discard, body, from); err != nil { // the server has no ranges
			_ = body.Close() // it was only read
			return nil, fmt.Errorf("reading %s: %w", at.Redacted(), err)
		}
		return body, nil
	}
	_ = body.Close() // it was only read
	err = fmt.Errorf("reading %s: the server answered %s", at.Redacted(), res.Status)
	if res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusForbidden || res.StatusCode == http.StatusGone {
		err = fmt.Errorf("%w: %w", err, ErrNotFound) // a bucket that may not be listed forbids what it lacks
	}
	return nil, err
}

// answer is a body whose Close ends its request.
type answer struct {
	*outward.IdleBody

	cancel  context.CancelFunc
	stalled atomic.Bool // the server sent nothing for too long
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.IdleBody.Read(p)
	if err != nil && a.stalled.Load() {
		err = fmt.Errorf("the server sent nothing for %v", quiet)
	}
	return n, err //nolint:wrapcheck // the body's error
}

// Close implements io.Closer.
func (a *answer) Close() error {
	defer a.cancel()
	return a.IdleBody.Close() //nolint:wrapcheck // the body's error
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
