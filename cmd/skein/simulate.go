package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v3"

	"skein/internal/frames"
	"skein/internal/relay"
)

func simulateCommand(e *environment) *cli.Command {
	var file, listen string
	var rate float64
	return &cli.Command{
		Name: "simulate", Usage: "serve recorded frames as a relay does, with cursor replay",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "frames", Usage: "the .frames file to serve; it is kept in memory", Required: true, Destination: &file},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3212", Usage: "address of com.atproto.sync.subscribeRepos", Destination: &listen},
			&cli.FloatFlag{Name: "rate", Usage: "frames per second, as they come in live (default: all of them lie in the past, for who asks with a cursor)", Destination: &rate},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if rate < 0 {
				return usage("--rate %v is negative", rate)
			}
			return simulate(ctx, e, file, listen, rate)
		},
	}
}

func simulate(ctx context.Context, e *environment, file, listen string, rate float64) error {
	all, err := frames.ReadFile(file)
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	r := relay.New(nil)
	mux := http.NewServeMux()
	mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", r)
	mux.HandleFunc("GET /xrpc/_health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":"`+version()+`"}`)
	})
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("simulate: --listen %s: %w", listen, err)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	go func() {
		if rate == 0 {
			r.Append(all...)
			return
		}
		begun := time.Now()
		for i, f := range all {
			select {
			case <-time.After(time.Until(begun.Add(time.Duration(float64(i) / rate * float64(time.Second))))):
				r.Append(f)
			case <-ctx.Done():
				return
			}
		}
	}()
	fmt.Fprintf(e.stderr, "serving %d frames on ws://%s\n", len(all), ln.Addr())
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("simulate: %w", err)
	}
	return nil
}
