package outward

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Answer is the error for an answer that says why a request failed.
type Answer struct {
	Code    int
	Name    string        // of an XRPC error
	Message string        // its message, or a short text
	After   time.Duration // RetryAfter
}

// AnswerOf reads the beginning of an answer, and closes its body. Pages and long texts say nothing.
func AnswerOf(resp *http.Response) *Answer {
	a := &Answer{Code: resp.StatusCode, After: RetryAfter(resp.Header, time.Now())}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
	_ = resp.Body.Close()
	var body struct{ Error, Message string }
	if json.Unmarshal(text, &body) == nil {
		a.Name, a.Message = body.Error, body.Message
	} else if line := strings.TrimSpace(string(text)); len(line) <= 300 && !strings.ContainsAny(line, "\n<") {
		a.Message = line
	}
	a.Message = cmp.Or(a.Message, http.StatusText(a.Code))
	return a
}

// Error implements error.
func (a *Answer) Error() string {
	return strings.Join(strings.Fields(fmt.Sprintf("HTTP %d %s%s", a.Code, strings.TrimPrefix(a.Name+": ", ": "), a.Message)), " ")
}

// IsBusy reports whether the server asks for a pause.
func (a *Answer) IsBusy() bool {
	return a.Code == http.StatusTooManyRequests || a.Code == http.StatusServiceUnavailable
}

// IsFinal reports whether asking again is useless.
func (a *Answer) IsFinal() bool {
	return (a.Code < 500 || a.Code == http.StatusNotImplemented) && a.Code != http.StatusTooManyRequests && a.Code != http.StatusRequestTimeout
}

// maxRetryAfter bounds the wait that a server can impose.
const maxRetryAfter = time.Hour

// RetryAfter returns how long a server asks us to wait, at most an hour: by Retry-After, in
// seconds or as a date (https://www.rfc-editor.org/rfc/rfc9110#name-retry-after), or by the
// ratelimit headers of the reference PDS. It returns 0 without such headers.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	after := strings.TrimSpace(h.Get("Retry-After"))
	wait, found := seconds(after)
	if t, err := http.ParseTime(after); err == nil {
		wait, found = t.Sub(now), true
	}
	if !found && h.Get("Ratelimit-Remaining") == "0" {
		reset := h.Get("Ratelimit-Reset")
		wait, _ = seconds(reset)
		if n, err := strconv.ParseInt(reset, 10, 64); err == nil && n > 1_000_000_000 { // a Unix time; the draft says seconds
			wait = time.Unix(n, 0).Sub(now)
		}
	}
	return min(max(wait, 0), maxRetryAfter)
}

// seconds parses a number of seconds, which may be absurdly large.
func seconds(s string) (time.Duration, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return time.Duration(min(max(n, 0), int64(maxRetryAfter/time.Second))) * time.Second, err == nil
}
