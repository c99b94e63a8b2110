package backfill

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"skein.blue/internal/outward"
)

// newClient returns a client for addresses from strangers, that is, from DID documents and
// redirects. It also connects to private addresses if the operator named them.
func newClient(o *Options) *http.Client {
	c := outward.NewClient(outward.Options{
		Trusted: append([]string{o.PLC, o.Relay}, o.Hosts...), AllowPrivate: o.AllowPrivateHosts, HeaderTimeout: o.HeaderTimeout, PerHost: o.PerHost,
	})
	c.Transport = outward.Paced(c.Transport, outward.Pace{Bytes: int64(float64(o.MinRate) * o.IdleTimeout.Seconds()), Within: o.IdleTimeout})
	return c
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
	a := &answer{code: resp.StatusCode, after: outward.RetryAfter(resp.Header, time.Now())}
	var body struct{ Error, Message string }
	text, err := io.ReadAll(io.LimitReader(resp.Body, 2000))
	if err == nil && json.Unmarshal(text, &body) == nil {
		a.name, a.message = body.Error, body.Message
	}
	return a
}
