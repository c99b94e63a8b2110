package outward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrSlow is wrapped by the errors of a transfer that ended because the server did not keep its Pace.
var ErrSlow = errors.New("the server is too slow")

// A Pace is the least that a transfer moves: so many bytes within each such time. A server that moves
// nothing for that long is too slow as well. The clock stands still while we produce the bytes, or deal
// with those that came: that is not the server's fault.
type Pace struct {
	Bytes  int64
	Within time.Duration
}

// Wait waits for d. If ctx ends first, Wait returns its error.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Paced returns a transport that ends a request if the server reads the request's body or sends the
// answer's more slowly than p. Between the two it may take twice p.Within.
func Paced(t http.RoundTripper, p Pace) http.RoundTripper { return paced{t, p} }

type paced struct {
	http.RoundTripper

	pace Pace
}

// RoundTrip implements http.RoundTripper.
func (t paced) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	up, down := newMeter(ctx, t.pace, cancel), newMeter(ctx, t.pace, cancel)
	req = req.WithContext(ctx)
	if body := req.Body; body != nil && body != http.NoBody {
		req.Body = &sending{body, up, 0}
		if again := req.GetBody; again != nil { // after a redirect, or on another connection
			req.GetBody = func() (io.ReadCloser, error) {
				body, err := again()
				return &sending{body, up, 0}, err
			}
		}
	}
	resp, err := t.RoundTripper.RoundTrip(req)
	up.stop()
	if err != nil {
		err = up.explain(err)
		cancel(nil)
		return nil, err // a transport must not wrap
	}
	resp.Body = &receiving{resp.Body, down, cancel}
	return resp, nil
}

// A meter ends a request whose server does not keep the pace.
type meter struct {
	ctx   context.Context //nolint:containedctx // of the request
	pace  Pace
	timer *time.Timer

	mu    sync.Mutex // guards the fields below: a server may answer before it has read everything
	over  bool
	begun time.Time     // of the server's turn; zero: it is ours
	spent time.Duration // by the server since moved was 0
	moved int64
}

func newMeter(ctx context.Context, p Pace, cancel context.CancelCauseFunc) *meter {
	slow := fmt.Errorf("%w: less than %d bytes in %v", ErrSlow, p.Bytes, p.Within)
	m := &meter{ctx: ctx, pace: p, timer: time.AfterFunc(p.Within, func() { cancel(slow) })}
	m.timer.Stop()
	return m
}

// serve begins the server's turn.
func (m *meter) serve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.begun = time.Now()
		m.timer.Reset(max(m.pace.Within-m.spent, 0))
	}
}

// rest ends the server's turn, in which it moved n bytes.
func (m *meter) rest(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer.Stop()
	if !m.begun.IsZero() {
		m.spent += time.Since(m.begun)
		m.begun = time.Time{}
	}
	if m.moved += int64(n); m.moved >= m.pace.Bytes {
		m.moved, m.spent = 0, 0
	}
}

// answer gives the server time for an answer: it has everything, or the network does.
func (m *meter) answer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent = -m.pace.Within
}

// stop ends the metering.
func (m *meter) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	m.timer.Stop()
}

// explain returns why a request failed: the pace, if that ended it.
func (m *meter) explain(err error) error {
	if cause := context.Cause(m.ctx); errors.Is(cause, ErrSlow) {
		return cause
	}
	return err
}

// receiving is the body of an answer. Reading is the server's turn.
type receiving struct {
	io.ReadCloser

	m      *meter
	cancel context.CancelCauseFunc
}

// Read implements io.Reader.
func (b *receiving) Read(p []byte) (int, error) {
	b.m.serve()
	n, err := b.ReadCloser.Read(p)
	b.m.rest(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.m.explain(err)
	}
	return n, err
}

// Close implements io.Closer. It ends the request.
func (b *receiving) Close() error {
	b.m.stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// sending is the body of a request. Between two Reads, what the first has read is on its way to the server.
type sending struct {
	io.ReadCloser

	m    *meter
	last int // bytes of the last Read
}

// Read implements io.Reader.
func (b *sending) Read(p []byte) (int, error) {
	b.m.rest(b.last)
	n, err := b.ReadCloser.Read(p)
	if b.last = n; err != nil {
		b.m.answer()
	}
	b.m.serve()
	return n, err
}
