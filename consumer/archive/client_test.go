package archive

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/outward"
)

var quiet = slog.New(slog.DiscardHandler)

// transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply is an answer of an archive.
func reply(code int, body io.Reader, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(body), ContentLength: -1}
}

// A request is repeated after growing waits, or after the wait that the archive asks for, within
// bounds; what a retry cannot help fails at once.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []scripted
		tries   int
		want    error
		n       int           // requests
		least   time.Duration // all waits
		most    time.Duration
	}{
		{"at once", []scripted{{code: 200}}, 5, nil, 1, 0, 0},
		{"the second time", []scripted{{code: 503}, {code: 200}}, 5, nil, 2, 500 * time.Millisecond, time.Second},
		{"the fourth time", []scripted{{code: 500}, {code: 502}, {code: 408}, {code: 200}}, 5, nil, 4, 3500 * time.Millisecond, 7 * time.Second},
		{"never", []scripted{{code: 500}, {code: 500}, {code: 500}}, 3, &outward.Answer{Code: 500}, 3, 1500 * time.Millisecond, 3 * time.Second},
		{"the archive asks for a wait", []scripted{{code: 429, after: "20"}, {code: 200}}, 5, nil, 2, 20 * time.Second, 21 * time.Second},
		{"the archive asks for a day", []scripted{{code: 429, after: "86400"}, {code: 200}}, 5, nil, 2, longest, longest},
		{"forbidden", []scripted{{code: 403}}, 5, ErrArchive, 1, 0, 0},
		{"a request too large", []scripted{{code: 413}}, 5, ErrArchive, 1, 0, 0},
		{"moved without a place", []scripted{{code: 304}}, 5, ErrArchive, 1, 0, 0},
		{"the file is gone", []scripted{{code: 404}}, 5, errReplan, 1, 0, 0},
		{"no connection", []scripted{{}, {}, {code: 200}}, 5, nil, 3, 1500 * time.Millisecond, 3 * time.Second},
		{"never a connection", []scripted{{}, {}}, 2, errRefused, 2, 500 * time.Millisecond, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				cl := &client{base: "http://archive.example.com", key: "k", tries: c.tries, delay: time.Second, log: quiet}
				cl.http = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					if r.Header.Get("Authorization") != "Bearer k" {
						t.Errorf("sent the key %q", r.Header.Get("Authorization"))
					}
					a := c.answers[requests]
					if requests++; a.code == 0 {
						return nil, errRefused
					}
					return reply(a.code, strings.NewReader("no"), "Retry-After", a.after), nil
				})}
				began := time.Now()
				err := cl.do(t.Context(), "thing", cl.url("getBlock", nil), nil, func(*http.Response) error { return nil })
				took := time.Since(began)
				if st, is := errors.AsType[*outward.Answer](c.want); is {
					if got, ok := errors.AsType[*outward.Answer](err); !ok || got.Code != st.Code || !strings.Contains(err.Error(), "thing") {
						t.Errorf("%v, want %v", err, c.want)
					}
				} else if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if requests != c.n || took < c.least || took > c.most {
					t.Errorf("%d requests in %v; want %d in %v to %v", requests, took, c.n, c.least, c.most)
				}
			})
		})
	}
}

var errRefused = errors.New("connection refused")

// scripted is an answer of an archive: an HTTP code, or, if that is 0, no connection.
type scripted struct {
	code  int
	after string // Retry-After
}

// A file that is longer than a segment may be is refused before it is read, and an answer that is no
// segment is an error.
func TestSegmentsOfStrangers(t *testing.T) {
	plan := &planSegment{Name: "x", Checksum: "0123456789abcdef"}
	for name, c := range map[string]struct {
		resp func() *http.Response
		want error
	}{
		"announced as endless": {func() *http.Response {
			r := reply(200, strings.NewReader("abc"))
			r.ContentLength = maxSegment + 1
			return r
		}, ErrArchive},
		"empty":           {func() *http.Response { return reply(200, strings.NewReader("")) }, ErrSegment},
		"a page":          {func() *http.Response { return reply(200, strings.NewReader(strings.Repeat("<p>hello</p>", 100))) }, ErrSegment},
		"another version": {func() *http.Response { return reply(200, bytes.NewReader(newServer(t).segment)) }, errReplan},
	} {
		cl := &client{base: "http://archive.example.com", tries: 1, delay: time.Millisecond, http: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) { return c.resp(), nil })}}
		if _, err := cl.segment(t.Context(), plan, nil, func(int64) {}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// The name of an archive's cursor does not depend on a slash at the end of the address; addresses
// that are not HTTP are errors.
func TestSource(t *testing.T) {
	for in, want := range map[string]string{
		"https://archive.example.com":            "archive https://archive.example.com",
		"https://archive.example.com/":           "archive https://archive.example.com",
		"http://127.0.0.1:7777/below/":           "archive http://127.0.0.1:7777/below",
		"https://archive.example.com?key=secret": "archive https://archive.example.com",
		"":                                       "", "archive.example.com": "", "ftp://archive.example.com": "", "https://": "", "https:///x": "", "http://%zz": "",
	} {
		got, err := Source(in)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrArchive) {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

// A plan may name runs of blocks that are reversed, or far too long; what is fetched stays bounded.
func TestBlocksOf(t *testing.T) {
	type run = struct {
		First int `json:"first"`
		Last  int `json:"last"`
	}
	for _, c := range []struct {
		s     planSegment
		first int
		n     int
	}{
		{planSegment{Mode: "segment", Blocks: []run{{1, 2}}}, -1, 1},
		{planSegment{Mode: "blocks", Blocks: []run{{3, 5}, {9, 9}}}, 3, 4},
		{planSegment{Mode: "blocks", Blocks: []run{{5, 3}}}, 0, 0},
		{planSegment{Mode: "blocks", Blocks: []run{{0, 1 << 40}}}, 0, 1 << 20},
		{planSegment{Mode: "blocks"}, 0, 0},
	} {
		got := blocksOf(&c.s)
		if len(got) != c.n || c.n > 0 && got[0] != c.first {
			t.Errorf("%+v: %d blocks, want %d", c.s, len(got), c.n)
		}
	}
}
