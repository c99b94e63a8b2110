package xrpc

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"skein.blue/internal/clients"
	"skein.blue/query/algebra"
)

// Queries with expressions that are too long for a URL are sent as forms: POST, with the
// parameters of GET in the body.

// Bytes of forms in memory, of all clients and of one. A form takes about four times its size
// until it is answered: encoded, decoded, parsed, and as ids.
const (
	formsInFlight     = 16 << 20
	formsOfAClient    = 4 << 20
	errorUnsupported  = "UnsupportedMediaType"
	errorTooLarge     = "PayloadTooLarge"
	errorFormTooSlow  = "RequestTimeout"
	errorTooManyForms = "Busy"
)

// FormMediaType is the media type of a form.
const FormMediaType = "application/x-www-form-urlencoded"

// Forms reads forms, and counts the bytes of the forms that are in memory.
type Forms struct {
	mu      sync.Mutex // guards the fields below
	held    int64
	clients map[string]int64
}

// NewForms returns Forms.
func NewForms() *Forms { return &Forms{clients: map[string]int64{}} }

// take reserves n bytes for a client, and reports whether there is room.
func (f *Forms) take(client string, n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held+n > formsInFlight || f.clients[client]+n > formsOfAClient {
		return false
	}
	f.held += n
	f.clients[client] += n
	return true
}

// give returns n bytes of a client.
func (f *Forms) give(client string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held -= n
	if f.clients[client] -= n; f.clients[client] == 0 {
		delete(f.clients, client)
	}
}

// Read reads the body of a POST, nil for another method. It ends with ctx, whose timeout the error
// names. The caller calls release after it has answered. The call holds no slot yet, so a client
// that sends slowly delays nobody.
func (f *Forms) Read(ctx context.Context, w http.ResponseWriter, r *http.Request, timeout time.Duration) (form *string, release func(), err error) {
	if r.Method != http.MethodPost {
		return nil, func() {}, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != FormMediaType {
		return nil, nil, Errorf(http.StatusUnsupportedMediaType, errorUnsupported, "the body is %q; send the parameters as %s", algebra.Brief(r.Header.Get("Content-Type")), FormMediaType)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, nil, Errorf(http.StatusUnsupportedMediaType, errorUnsupported, "the body is encoded as %q; send it without an encoding", algebra.Brief(coding))
	}
	if r.ContentLength > algebra.MaxForm {
		return nil, nil, formTooLarge()
	}
	size := r.ContentLength
	if size < 0 { // unknown
		size = algebra.MaxForm
	}
	client := clients.Of(r)
	if !f.take(client, size) {
		w.Header().Set("Retry-After", "1")
		return nil, nil, Errorf(http.StatusServiceUnavailable, errorTooManyForms, "too many forms in flight: one client may have %d bytes, all clients %d; try again later", formsOfAClient, formsInFlight)
	}
	defer func() {
		if err != nil {
			f.give(client, size)
		}
	}()
	c := http.NewResponseController(w)
	if until, ok := ctx.Deadline(); ok {
		_ = c.SetReadDeadline(until) // fails only on a test's recorder
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, algebra.MaxForm))
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		return nil, nil, formTooLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil, Errorf(http.StatusRequestTimeout, errorFormTooSlow, "the complete body did not arrive within %v", timeout)
	}
	if err != nil {
		return nil, nil, Invalid("the body cannot be read: %v", err)
	}
	// Its passing would look as if the client had disconnected. With an error it stays: before it answers, the server
	// reads what is left of the body.
	_ = c.SetReadDeadline(time.Time{})
	text := string(b)
	return &text, func() { f.give(client, size) }, nil
}

func formTooLarge() error {
	return Errorf(http.StatusRequestEntityTooLarge, errorTooLarge, "the body has more than %d bytes: ask about fewer members at a time", algebra.MaxForm)
}
