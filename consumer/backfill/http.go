package backfill

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skein.blue/internal/outward"
)

// newClient returns a client for addresses that come from strangers: documents of DIDs,
// and redirects. What the operator named is asked wherever it is.
func newClient(o *Options) *http.Client {
	return outward.NewClient(outward.Options{
		Trusted: append([]string{o.PLC, o.Relay}, o.Hosts...), AllowPrivate: o.AllowPrivateHosts, HeaderTimeout: o.HeaderTimeout, PerHost: o.PerHost,
	})
}

// answer is an HTTP error of a host.
type answer struct {
	code    int
	name    string // of an XRPC error
	message string
	after   time.Duration // how long the host wants to be left alone, 0 if it does not say
}

// Error implements error.
func (a *answer) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP %d %s %s", a.code, a.name, a.message))
}

// answerOf reads the error of a response.
func answerOf(resp *http.Response) *answer {
	a := &answer{code: resp.StatusCode, after: retryAfter(resp.Header, time.Now())}
	var body struct{ Error, Message string }
	text, err := io.ReadAll(io.LimitReader(resp.Body, 2000))
	if err == nil && json.Unmarshal(text, &body) == nil {
		a.name, a.message = body.Error, body.Message
	}
	return a
}

// retryAfter returns how long a host wants to be left alone, by Retry-After or by the
// ratelimit headers of the reference PDS.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if s := h.Get("Retry-After"); s != "" {
		if n, err := strconv.Atoi(s); err == nil {
			return time.Duration(n) * time.Second
		}
		if t, err := http.ParseTime(s); err == nil {
			return t.Sub(now)
		}
	}
	if h.Get("Ratelimit-Remaining") == "0" {
		if n, err := strconv.ParseInt(h.Get("Ratelimit-Reset"), 10, 64); err == nil {
			if n > 1_000_000_000 { // a time, as the reference PDS sends; the draft says seconds
				return time.Unix(n, 0).Sub(now)
			}
			return time.Duration(n) * time.Second
		}
	}
	return 0
}

// idle is a body that must go on: a Read that takes longer than its time ends the request.
// Between two Reads the time stands still: the host is not to blame for what we do then.
type idle struct {
	io.Reader

	timer *time.Timer
	most  time.Duration
}

// Read implements io.Reader.
func (r *idle) Read(p []byte) (int, error) {
	r.timer.Reset(r.most)
	defer r.timer.Stop()
	return r.Reader.Read(p) //nolint:wrapcheck // an io.Reader's
}
