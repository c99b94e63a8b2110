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

// newClient returns a client for addresses from strangers, that is, from DID documents and
// redirects. It also connects to private addresses if the operator named them.
func newClient(o *Options) *http.Client {
	return outward.NewClient(outward.Options{
		Trusted: append([]string{o.PLC, o.Relay}, o.Hosts...), AllowPrivate: o.AllowPrivateHosts, HeaderTimeout: o.HeaderTimeout, PerHost: o.PerHost,
	})
}

// answer is an HTTP error from a host.
type answer struct {
	code    int
	name    string // of an XRPC error
	message string
	after   time.Duration // the wait that the host asks for; 0: none
}

// Error implements error.
func (a *answer) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP %d %s %s", a.code, a.name, a.message))
}

// answerOf parses the error in a response.
func answerOf(resp *http.Response) *answer {
	a := &answer{code: resp.StatusCode, after: retryAfter(resp.Header, time.Now())}
	var body struct{ Error, Message string }
	text, err := io.ReadAll(io.LimitReader(resp.Body, 2000))
	if err == nil && json.Unmarshal(text, &body) == nil {
		a.name, a.message = body.Error, body.Message
	}
	return a
}

// retryAfter returns the wait that a host asks for, from Retry-After or the ratelimit
// headers of the reference PDS.
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
			if n > 1_000_000_000 { // a Unix time, as the reference PDS sends it; the draft says seconds
				return time.Unix(n, 0).Sub(now)
			}
			return time.Duration(n) * time.Second
		}
	}
	return 0
}

// idleBody ends the request if a Read takes longer than most. The clock stops between two
// Reads: the host is not to blame for what we do then.
type idleBody struct {
	io.Reader

	timer *time.Timer
	most  time.Duration
}

// Read implements io.Reader.
func (r *idleBody) Read(p []byte) (int, error) {
	r.timer.Reset(r.most)
	defer r.timer.Stop()
	return r.Reader.Read(p) //nolint:wrapcheck // the io.Reader's error
}
