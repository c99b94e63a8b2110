package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"skein.blue/internal/clients"
	"skein.blue/internal/outward"
)

// An Asker asks the query API of a server.
type Asker struct {
	Server    string // http(s)://…
	Token     string // "" for none
	UserAgent string
	Client    *http.Client
}

// Insist is Ask, again after each wait of up to a minute that the server asks for, which waits receives.
func (a *Asker) Insist(ctx context.Context, method string, params url.Values, v any, waits func(err error, wait time.Duration)) error {
	for {
		err := a.Ask(ctx, method, params, v)
		busy, ok := errors.AsType[*outward.Answer](err)
		if !ok || busy.After == 0 || busy.After > time.Minute {
			return err
		}
		waits(err, busy.After)
		if err := outward.Wait(ctx, busy.After); err != nil {
			return err
		}
	}
}

// Ask decodes the answer of a method, which may take a minute, into v. An error that the server answers with is an *outward.Answer.
func (a *Asker) Ask(ctx context.Context, method string, params url.Values, v any) (err error) {
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	resp, err := a.open(ctx, method, params)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("the answer of %s broke off: %w", resp.Request.URL.Host, err)
	}
	if json.Unmarshal(b, v) != nil {
		return notSkein(resp)
	}
	return nil
}

// open sends a query, and returns the answer unless it is an error.
func (a *Asker) open(ctx context.Context, method string, params url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Server+"/xrpc/blue.skein.graph."+method+"?"+params.Encode(), nil)
	if err != nil {
		return nil, UsageError("--server: %v", err)
	}
	req.Header.Set("User-Agent", a.UserAgent)
	if a.Token != "" {
		req.Header.Set(clients.TokenHeader, a.Token)
	}
	resp, err := a.Client.Do(req)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, context.Cause(ctx) //nolint:wrapcheck // interrupted
	}
	if err != nil {
		return nil, fmt.Errorf("no answer from %s; is skein serve running there? (%w)", req.URL.Host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	answer := outward.AnswerOf(resp)
	if answer.Name == "" && (answer.Code < http.StatusBadRequest || answer.Code == http.StatusNotFound) { // others may be a proxy's
		return nil, notSkein(resp)
	}
	return nil, answer
}

func notSkein(resp *http.Response) error {
	return stopError{fmt.Errorf("%s answered %s, which is not an answer from skein; --server must be the address of the query API, not of the admin listener", resp.Request.URL.Host, resp.Status)}
}

// local passes requests to a handler of this process.
type local struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	a := &localAnswer{header: http.Header{}, body: w, status: make(chan int, 1)}
	r = r.Clone(r.Context())
	r.RemoteAddr = "" // no client: the operator bounds them
	if r.Body == nil {
		r.Body = http.NoBody
	}
	go func() {
		l.ServeHTTP(a, r)
		a.WriteHeader(http.StatusOK)
		_ = w.Close()
	}()
	select {
	case status := <-a.status:
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: a.header, Body: body, Request: r}, nil
	case <-r.Context().Done():
		_ = body.Close()
		return nil, r.Context().Err()
	}
}

// A localAnswer is an http.ResponseWriter.
type localAnswer struct {
	header http.Header
	body   *io.PipeWriter
	status chan int
	begun  bool
}

func (a *localAnswer) Header() http.Header { return a.header }
func (a *localAnswer) Flush()              {}

func (a *localAnswer) WriteHeader(status int) {
	if !a.begun {
		a.begun = true
		a.status <- status
	}
}

func (a *localAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
