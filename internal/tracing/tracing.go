// Package tracing sends a share of the daemon's work as traces to an OpenTelemetry collector, by
// OTLP over HTTP (https://opentelemetry.io/docs/specs/otlp/).
//
// There are three kinds of traces, each made where the work is done:
//
//   - a query (package query), with its wait in a queue;
//   - a batch of events (package graph), with its writes;
//   - a fetched repo (package consumer/backfill).
//
// A package that makes traces has a trace.Tracer in its options, and passes it through OrNone. No
// trace is made per event.
//
// The sampling is by chance, per trace. It never depends on what a client sends: the trace that a
// client's traceparent header names is linked, not continued, so a client cannot have all of its
// queries traced.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"skein.blue/internal/loglimit"
)

// Options say where traces go, and how many.
type Options struct {
	// Endpoint is the address of a collector, such as http://127.0.0.1:4318. Without a path,
	// /v1/traces is added. The variables OTEL_EXPORTER_OTLP_HEADERS and
	// OTEL_EXPORTER_OTLP_CERTIFICATE are honoured.
	Endpoint string
	// Share is the share of traces that are sent, from 0 to 1.
	Share float64
	// Version is the program's version.
	Version string
	// Instance names this process among others.
	Instance string
	// Timeout limits each attempt to send, and Close. 0 means ten seconds.
	Timeout time.Duration
	// Logger receives failures to send, at most one a minute. nil means no logging.
	Logger *slog.Logger
}

// Bounds of what waits to be sent. When it is full, spans are dropped.
const (
	maxSpans       = 2048
	defaultTimeout = 10 * time.Second
	maxText        = 1024 // bytes of one attribute
)

// A Tracing sends traces.
type Tracing struct {
	provider *sdk.TracerProvider
	timeout  time.Duration
}

// ErrOptions means that Options are wrong.
var ErrOptions = errors.New("invalid option")

// New starts to send traces.
func New(ctx context.Context, o Options) (*Tracing, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%w: the endpoint %q is not a URL; write one such as http://127.0.0.1:4318", ErrOptions, o.Endpoint)
	}
	if !(o.Share >= 0 && o.Share <= 1) {
		return nil, fmt.Errorf("%w: the share %v is not from 0 to 1", ErrOptions, o.Share)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	timeout := cmp.Or(o.Timeout, defaultTimeout)
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(timeout), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	limit := &loglimit.Limiter{Every: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // the library has one for the process
		if held, ok := limit.Allow("send"); ok {
			log.Warn("sending traces failed; they are dropped", "endpoint", u.Redacted(), "error", err, "occurrences", held+1)
		}
	}))
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxText
	return &Tracing{timeout: timeout, provider: sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(maxSpans), sdk.WithExportTimeout(timeout)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Share))),
		sdk.WithRawSpanLimits(limits),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "skein"), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Instance))),
	)}, nil
}

// Tracer returns the Tracer of the daemon. A nil Tracing has one that records nothing.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return OrNone(nil)
	}
	return t.provider.Tracer("skein.blue")
}

// Close sends what is left, for Options.Timeout at most.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// OrNone returns t, or a Tracer that records nothing if t is nil.
func OrNone(t trace.Tracer) trace.Tracer {
	if t == nil {
		return noop.Tracer{}
	}
	return t
}

// End ends a span, with what went wrong if err is not nil.
func End(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// StartRequest starts the trace of a request from a client. It links the client's own trace.
func StartRequest(ctx context.Context, t trace.Tracer, h http.Header, name string) (context.Context, trace.Span) {
	o := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer)}
	if h.Get("Traceparent") != "" {
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(h)))
		if theirs.IsValid() {
			o = append(o, trace.WithLinks(trace.Link{SpanContext: theirs}))
		}
	}
	return t.Start(ctx, name, o...)
}
