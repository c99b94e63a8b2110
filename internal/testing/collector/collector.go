// Package collector is an OpenTelemetry collector for tests: it keeps the spans that it receives.
package collector

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	request "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Collector receives traces by OTLP over HTTP, in protobuf.
type Collector struct {
	// URL is its address, without a path.
	URL string

	mu       sync.Mutex // guards the fields below
	spans    []*v1.Span
	resource []string
	paths    []string
}

// Start starts a Collector. It ends with the test.
func Start(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{}
	s := httptest.NewServer(c)
	tb.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths = append(c.paths, r.URL.Path)
	for _, rs := range all.GetResourceSpans() {
		c.resource = nil
		for _, a := range rs.GetResource().GetAttributes() {
			c.resource = append(c.resource, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
}

func read(r *http.Request) (*request.ExportTraceServiceRequest, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err //nolint:wrapcheck // a test reads it
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, err //nolint:wrapcheck // a test reads it
	}
	all := &request.ExportTraceServiceRequest{}
	return all, proto.Unmarshal(b, all) //nolint:wrapcheck // a test reads it
}

// Spans returns the spans received so far with a name, or all for "".
func (c *Collector) Spans(name string) []*v1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s *v1.Span) bool { return name != "" && s.GetName() != name })
}

// Resource returns the attributes of the latest sender, as key=value.
func (c *Collector) Resource() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.resource)
}

// Paths returns the path of each request.
func (c *Collector) Paths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.paths)
}

// Reset forgets what was received.
func (c *Collector) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans, c.resource, c.paths = nil, nil, nil
}

// Attributes returns the attributes of a span: strings, and integers as int64.
func Attributes(s *v1.Span) map[string]any {
	all := map[string]any{}
	for _, a := range s.GetAttributes() {
		if text := a.GetValue().GetStringValue(); text != "" {
			all[a.GetKey()] = text
		} else {
			all[a.GetKey()] = a.GetValue().GetIntValue()
		}
	}
	return all
}
