package xrpc

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"skein.blue/internal/clients"
	"skein.blue/query/language"
)

// Queries with expressions that are too long for a URL are sent as forms: POST, with the
// parameters of GET in the body.

// formsInFlight is the number of bytes of forms in memory, which clients share (clients.Pool). A form takes about four times its
// size until it is answered: encoded, decoded, parsed, and as ids.
const formsInFlight = 16 << 20

// FormMediaType is the media type of a form, and InputMediaType that of the input of a procedure, which is read as a form is.
const (
	FormMediaType  = "application/x-www-form-urlencoded"
	InputMediaType = "application/json"
)

// Forms reads forms, and shares their memory among clients. Bytes count as they arrive: a form that was announced and does not
// come takes nothing from others.
type Forms struct{ pool *clients.Pool }

// NewForms returns Forms.
func NewForms() *Forms { return &Forms{clients.NewPool(formsInFlight)} }

// errTaken is the error of a form whose memory was given to another client.
var errTaken = Errorf(http.StatusServiceUnavailable, "Busy", "the server's memory for forms is full, and this client held the most of it; try again later, with fewer or shorter forms at a time")

var errTooLarge = Errorf(http.StatusRequestEntityTooLarge, "PayloadTooLarge", "the body has more than %d bytes: ask about fewer members at a time", language.MaxForm)

// Read reads the body of a POST, nil for another method. It ends with ctx, whose timeout the error
// names. The caller calls release after it has answered; if the memory is needed for another client before, ctx ends, with an error for
// the client as its cause. The call holds no slot yet, so a client that sends slowly delays nobody.
func (f *Forms) Read(ctx context.Context, end context.CancelCauseFunc, w http.ResponseWriter, r *http.Request, m *Method, timeout time.Duration) (form *string, release func(), err error) {
	if r.Method != http.MethodPost {
		return nil, func() {}, nil
	}
	want := FormMediaType
	if m.Procedure {
		want = InputMediaType
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != want {
		return nil, nil, Errorf(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body is %q; send it as %s", language.Brief(r.Header.Get("Content-Type")), want)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, nil, Errorf(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body is encoded as %q; send it without an encoding", language.Brief(coding))
	}
	if r.ContentLength > language.MaxForm {
		return nil, nil, errTooLarge
	}
	c := http.NewResponseController(w)
	hold, ok := f.pool.Take(clients.Of(r), 1, func() {
		end(errTaken)
		_ = c.SetReadDeadline(time.Now()) // fails only on a test's recorder
	})
	if !ok {
		return nil, nil, errTaken
	}
	defer func() {
		if err != nil {
			hold.Give()
		}
	}()
	if until, ok := ctx.Deadline(); ok {
		_ = c.SetReadDeadline(until)
	}
	b, err := io.ReadAll(&heldReader{http.MaxBytesReader(w, r.Body, language.MaxForm), hold})
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		return nil, nil, errTooLarge
	}
	if errors.Is(err, errTaken) || err != nil && errors.Is(context.Cause(ctx), errTaken) {
		return nil, nil, errTaken
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil, Errorf(http.StatusRequestTimeout, "RequestTimeout", "the complete body did not arrive within %v", timeout)
	}
	if err != nil {
		return nil, nil, Invalid("the body cannot be read: %v", err)
	}
	// Its passing would look as if the client had disconnected. With an error it stays: before it answers, the server
	// reads what is left of the body.
	_ = c.SetReadDeadline(time.Time{})
	text := string(b)
	return &text, hold.Give, nil
}

// heldReader takes the bytes that it reads from a Pool.
type heldReader struct {
	from io.Reader
	hold *clients.Hold
}

// Read implements io.Reader.
func (h *heldReader) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	if n > 0 && !h.hold.Add(int64(n)) {
		return n, errTaken
	}
	return n, err // Read looks at its type
}
