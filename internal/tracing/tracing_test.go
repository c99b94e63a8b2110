package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"skein.blue/internal/testing/collector"
	"skein.blue/internal/tracing"
)

// Traces arrive at a collector: requests are roots that link the client's trace, and errors and
// long attributes are as they should be.
func TestTracing(t *testing.T) {
	c := collector.Start(t)
	tr, err := tracing.New(t.Context(), tracing.Options{Endpoint: c.URL, Share: 1, Version: "v1", Instance: "host/1"})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	ctx, span := tracing.StartRequest(t.Context(), tr.Tracer(), h, "a query")
	span.SetAttributes(attribute.String("long", strings.Repeat("x", 5000)))
	_, child := tr.Tracer().Start(ctx, "a part")
	tracing.End(child, errors.New("the reason"))
	tracing.End(span, nil)
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.Spans("")) != 2 || strings.Join(c.Paths(), " ") != "/v1/traces" || strings.Join(c.Resource(), " ") != "service.instance.id=host/1 service.name=skein service.version=v1" {
		t.Fatalf("%q: %v of %q", c.Paths(), c.Spans(""), c.Resource())
	}
	part, query := c.Spans("")[0], c.Spans("")[1]
	if query.GetName() != "a query" || len(query.GetParentSpanId()) > 0 || query.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("%v", query)
	}
	if l := query.GetLinks(); len(l) != 1 || bytes.Equal(l[0].GetTraceId(), query.GetTraceId()) || l[0].GetTraceId()[0] != 0x0a {
		t.Errorf("links: %v", l)
	}
	if n := len(query.GetAttributes()[0].GetValue().GetStringValue()); n != 1024 {
		t.Errorf("an attribute of 5000 bytes has %d", n)
	}
	if part.GetName() != "a part" || !bytes.Equal(part.GetParentSpanId(), query.GetSpanId()) || part.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || len(part.GetEvents()) != 1 {
		t.Errorf("%v", part)
	}
}

// The share of traces that are sent does not depend on what clients send: a client whose own trace
// is sampled, under an ID of its choice, is traced as rarely as others.
func TestShare(t *testing.T) {
	c := collector.Start(t)
	const n = 2000
	for share, most := range map[float64]int{0: 0, 0.1: n / 5} {
		c.Reset()
		tr, err := tracing.New(t.Context(), tracing.Options{Endpoint: c.URL, Share: share})
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			_, span := tracing.StartRequest(t.Context(), tr.Tracer(), http.Header{"Traceparent": {"00-00000000000000000000000000000001-b7ad6b7169203331-01"}}, "a query")
			span.End()
		}
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(c.Spans("")); got > most || share > 0 && got < n/20 {
			t.Errorf("of %d with share %v, %d were sent", n, share, got)
		}
	}
}

// lockedBuffer is a log that several goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Without a collector nothing waits, and the log says once what happens to the traces.
func TestNoCollector(t *testing.T) {
	stuck := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	defer s.Close()
	defer close(stuck)
	gone := httptest.NewServer(http.NotFoundHandler())
	const timeout = 2 * time.Second
	for name, endpoint := range map[string]string{"hangs": s.URL, "answers 404": gone.URL} {
		var log lockedBuffer
		tr, err := tracing.New(t.Context(), tracing.Options{Endpoint: endpoint, Share: 1, Timeout: timeout, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 20_000 {
			_, span := tr.Tracer().Start(t.Context(), "a batch")
			span.End()
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s: 20,000 spans took %v", name, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_ = tr.Close(ctx)
		cancel()
		if took := time.Since(began); took > timeout+5*time.Second {
			t.Errorf("%s: closing took %v", name, took)
		}
		if said := strings.Count(log.String(), "sending traces failed"); said > 1 || name == "answers 404" && said == 0 {
			t.Errorf("%s: the log says %d times that sending failed:\n%s", name, said, log.String())
		}
	}
}

// Wrong options are errors, and without Tracing nothing is recorded.
func TestOptions(t *testing.T) {
	for _, o := range []tracing.Options{
		{Endpoint: ""},
		{Endpoint: "127.0.0.1:4318"},
		{Endpoint: "grpc://127.0.0.1:4317"},
		{Endpoint: "http://"},
		{Endpoint: "http://127.0.0.1:4318", Share: -0.1},
		{Endpoint: "http://127.0.0.1:4318", Share: 1.1},
	} {
		if _, err := tracing.New(t.Context(), o); !errors.Is(err, tracing.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	var none *tracing.Tracing
	_, span := none.Tracer().Start(t.Context(), "nothing")
	if span.IsRecording() || none.Close(t.Context()) != nil {
		t.Error("a nil Tracing records")
	}
	if allocs := testing.AllocsPerRun(100, func() {
		_, span := none.Tracer().Start(t.Context(), "nothing", trace.WithNewRoot())
		span.End()
	}); allocs > 4 {
		t.Errorf("a span that is not recorded takes %v allocations", allocs)
	}
}
