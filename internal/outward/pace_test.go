package outward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// chunks is a body that has one chunk after each wait, until ctx ends.
type chunks struct {
	ctx   context.Context //nolint:containedctx // of a test
	chunk int
	wait  time.Duration
	n     int
}

func (c *chunks) Read(p []byte) (int, error) {
	if c.n == 0 {
		return 0, io.EOF
	}
	c.n--
	if err := Wait(c.ctx, c.wait); err != nil {
		return 0, err
	}
	return min(len(p), c.chunk), nil
}

// server is a transport: it reads a chunk of the request after each wait, and answers with chunks.
type server struct {
	chunk       int
	read, write time.Duration
	answers     time.Duration // after it has read everything
	n           int           // chunks of the answer
}

func (s server) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	for p := make([]byte, s.chunk); req.Body != nil; {
		_, err := io.ReadFull(req.Body, p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err := Wait(ctx, s.read); err != nil {
			return nil, err
		}
	}
	if err := Wait(ctx, s.answers); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&chunks{ctx, s.chunk, s.write, s.n})}, nil
}

// A server that keeps the pace may take as long as it likes, and our own pauses do not count. One that
// moves less than that, or nothing, is given up within a few times the pace's time, in both directions.
func TestPace(t *testing.T) {
	pace := Pace{Bytes: 10_000, Within: 30 * time.Second}
	sec := time.Second
	for _, c := range []struct {
		name  string
		s     server
		sends int           // chunks of the request
		own   time.Duration // our pause before each Read
		slow  bool
	}{
		{"a download at the pace, for hours", server{1000, 0, 2990 * time.Millisecond, 0, 5000}, 0, 0, false},
		{"a download, with long pauses of ours", server{1000, 0, 2900 * time.Millisecond, 0, 100}, 0, time.Hour, false},
		{"a download that drips", server{1, 0, sec, 0, 10_000}, 0, 0, true},
		{"a download a little below the pace", server{1000, 0, 3200 * time.Millisecond, 0, 5000}, 0, 0, true},
		{"a download that stops", server{10_000, 0, 31 * sec, 0, 10}, 0, 0, true},
		{"a small download", server{10, 0, 29 * sec, 0, 1}, 0, 0, false},
		{"an upload at the pace, for hours", server{1000, 2900 * time.Millisecond, 0, 0, 1}, 5000, 0, false},
		{"an upload, with long pauses of ours", server{1000, 2 * sec, 0, 0, 1}, 100, time.Hour, false},
		{"an upload that is read drop by drop", server{10, sec, 0, 0, 1}, 5000, 0, true},
		{"an upload that is not read any more", server{1000, time.Hour * 1000, 0, 0, 1}, 5, 0, true},
		{"an upload whose server thinks", server{1000, sec, 0, 55 * sec, 1}, 5, 0, false},
		{"an upload that gets no answer", server{1000, sec, 0, time.Hour, 1}, 5, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var body io.Reader
				if c.sends > 0 {
					body = &chunks{t.Context(), c.s.chunk, c.own, c.sends}
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://x.example", body)
				must(t, err)
				began, read := time.Now(), 0
				resp, err := Paced(c.s, pace).RoundTrip(req)
				if err == nil {
					p := make([]byte, c.s.chunk)
					for err == nil {
						if c.sends == 0 {
							time.Sleep(c.own)
						}
						var n int
						n, err = resp.Body.Read(p)
						read += n
					}
					must(t, resp.Body.Close())
				}
				if c.slow != errors.Is(err, ErrSlow) || !c.slow && (!errors.Is(err, io.EOF) || read != c.s.n*c.s.chunk) {
					t.Errorf("%d bytes, %v", read, err)
				}
				if took := time.Since(began); c.slow && took > 20*pace.Within {
					t.Errorf("given up only after %v", took)
				}
			})
		})
	}
}

// What ends a request for another reason is not the pace's: the caller's context, and the body's error.
func TestPaceExplainsNothingElse(t *testing.T) {
	want := errors.New("reset by peer")
	fails := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: io.NopCloser(iotest.ErrReader(want))}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x.example", nil)
	must(t, err)
	resp, err := Paced(fails, Pace{1, time.Second}).RoundTrip(req)
	must(t, err)
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, want) || errors.Is(err, ErrSlow) {
		t.Error(err)
	}
	must(t, resp.Body.Close())
	cancel()
	ends := roundTrip(func(req *http.Request) (*http.Response, error) { return nil, req.Context().Err() })
	if _, err := Paced(ends, Pace{1, time.Second}).RoundTrip(req); !errors.Is(err, context.Canceled) { //nolint:bodyclose // there is none
		t.Error(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A body that is sent again, after a redirect, is metered as well.
func TestPaceOfRepeatedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := roundTrip(func(req *http.Request) (*http.Response, error) {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			if _, err := body.Read(make([]byte, 1)); err != nil {
				return nil, err
			}
			<-req.Context().Done()
			return nil, fmt.Errorf("sending: %w", req.Context().Err())
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://x.example", strings.NewReader("abc"))
		must(t, err)
		if _, err := Paced(again, Pace{10, time.Second}).RoundTrip(req); !errors.Is(err, ErrSlow) { //nolint:bodyclose // there is none
			t.Error(err)
		}
	})
}
