package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/tracing"
)

// traceShare is the default share of traces that are sent.
const traceShare = 0.01

// TraceFlags returns the flags for traces.
func (s *Settings) TraceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "trace-endpoint", DefaultText: "none", Usage: "URL of the OpenTelemetry collector to send traces to (OTLP over HTTP), such as http://127.0.0.1:4318", Destination: &s.traceEndpoint, Sources: Env("trace-endpoint")},
		&cli.Float64Flag{Name: "trace-share", Value: traceShare, Usage: "fraction of queries, event batches and repo fetches to trace, from 0 to 1", Destination: &s.traceShare, Sources: Env("trace-share")},
	}
}

// Tracing returns what sends traces, nil without --trace-endpoint.
func (s *Settings) Tracing(ctx context.Context, log *slog.Logger) (*tracing.Tracing, error) {
	if s.traceEndpoint == "" {
		if s.traceShare != traceShare {
			return nil, UsageError("--trace-share needs --trace-endpoint")
		}
		return nil, nil // no traces are wanted
	}
	if !(s.traceShare >= 0 && s.traceShare <= 1) {
		return nil, UsageError("--trace-share %v: must be a number from 0 to 1", s.traceShare)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	t, err := tracing.New(ctx, tracing.Options{
		Endpoint: s.traceEndpoint, Share: s.traceShare, Version: Version(), Instance: fmt.Sprintf("%s/%d", host, os.Getpid()), Logger: log.With("component", "tracing"),
	})
	if err != nil {
		return nil, UsageError("--trace-endpoint: %v", err)
	}
	return t, nil
}
