package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/outward"
	"skein.blue/internal/page"
	"skein.blue/internal/sim/demo"
)

func demoCommand(e *command.Environment) *cli.Command {
	var listen string
	var ends time.Duration
	return &cli.Command{
		Name:  "demo",
		Usage: "try skein on a small made-up network; leaves nothing behind",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3210", Usage: "address of the web page and the query API", Destination: &listen},
			&cli.DurationFlag{Name: "for", DefaultText: "until Ctrl-C", Usage: "how long to run", Destination: &ends},
		},
		Action: func(ctx context.Context, _ *cli.Command) error {
			if ends < 0 {
				return command.UsageError("--for %v is negative", ends)
			}
			return runDemo(ctx, e, listen, ends)
		},
	}
}

// runDemo indexes a made-up network into a temporary folder.
func runDemo(ctx context.Context, e *command.Environment, listen string, ends time.Duration) (err error) {
	signal.Ignore(syscall.SIGPIPE) // the reader of the output may exit; the folder must still be removed
	dir, err := os.MkdirTemp("", "skein-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	network := demo.New(1)
	relay, err := demo.Serve(ctx, network)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(e.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	slog.SetDefault(log) // what libraries say
	so := app.StoreOptions{Store: dir + "/store", Create: true, Logger: log}
	if err := errors.Join(so.AddPosts(true), so.AddKinds("app.bsky.feed.post self at-uri posts\napp.bsky.feed.post tags[] text tags taggers tagged")); err != nil {
		return err
	}
	x, err := app.OpenIndex(ctx, so)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(context.WithoutCancel(ctx))) }()
	var about atomic.Pointer[demo.Highlights]
	o := app.ServeOptions{
		Listen: listen, Version: command.Version(), Consume: &consumer.Options{Relay: relay.Address(), Cursor: new(int64), UserAgent: "skein-demo"},
		Handles: network, Page: page.Options{Handles: true, People: network.People(), Examples: func() []page.Example { return examples(network, about.Load()) }},
		Ready: func(api, _ net.Addr) {
			go func() {
				if err := tour(ctx, e, x, "http://"+api.String(), network, relay, &about); err != nil && ctx.Err() == nil {
					stop(err)
				} else if ends > 0 {
					time.AfterFunc(ends, func() { stop(context.Canceled) })
				}
			}()
		},
	}
	return x.Serve(ctx, o)
}

// examples returns the queries that the page proposes. tour asks all but the last two.
func examples(n *demo.Network, h *demo.Highlights) []page.Example {
	if h == nil {
		return nil // the network's past is not made yet
	}
	fan, one, other := "@"+n.Handle(h.Fan), "@"+n.Handle(h.Stars[0]), "@"+n.Handle(h.Stars[1])
	alike := fmt.Sprintf("rank(of=likes(%s), via=likers, damp=0.5, top=300, except=members(%[1]s))", fan)
	return []page.Example{
		{Title: "Who follows both of these accounts?", Q: fmt.Sprintf("intersect(followers(%s), followers(%s))", one, other)},
		{Title: "Which of the accounts that an account follows liked a post?", Q: fmt.Sprintf("intersect(follows(%s), likers(%s))", fan, h.Post)},
		{Title: "What have the accounts that an account follows liked in the last 24 hours?", Q: fmt.Sprintf("rank(of=follows(%s), via=likes, since=24h)", fan)},
		{Title: "Who on a list follows an account?", Q: fmt.Sprintf("intersect(listed(%s), followers(%s))", h.List, one)},
		{Title: "For you: what do people with similar likes like now?", Q: fmt.Sprintf("rank(of=%s, via=likes, weigh=score, damp=0.3, decay=6h, since=24h, except=likes(%s))", alike, fan)},
		{Title: "An account", Q: fan},
		{Title: "A post", Q: h.Post},
	}
}

// tour waits until the past is indexed, then asks queries.
func tour(ctx context.Context, e *command.Environment, x *app.Index, base string, n *demo.Network, relay *demo.Relay, found *atomic.Pointer[demo.Highlights]) error {
	folder, _ := os.Getwd()
	fmt.Fprintf(e.Stdout, "Indexing a small made-up network. Watch it and query it at\n\n    %s/\n\nor with the commands below, in a second terminal, in %s\n\n", base, folder)
	var about demo.Highlights
	select {
	case about = <-relay.Past():
		found.Store(&about)
	case <-ctx.Done():
		return nil
	}
	for c, _ := x.Graph.Newest(""); int64(c.Seq) < relay.Seq(); c, _ = x.Graph.Newest("") {
		if outward.Wait(ctx, 20*time.Millisecond) != nil {
			return nil //nolint:nilerr // the demo was ended
		}
	}
	program := started(os.Args[0])
	ask := program + " query "
	if base != "http://127.0.0.1:3210" { // skein query's default
		ask += "--server " + base + " "
	}
	questions := examples(n, &about)
	for _, q := range questions[:len(questions)-2] {
		if err := show(ctx, e, n, base, ask, q.Title, q.Q); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Stdout, "To run the programs in examples/ against this demo, set A=%s L=%s\n\n", about.Stars[0], about.List)
	fmt.Fprintf(e.Stdout, "The demo runs until Ctrl-C and leaves nothing behind. For your part of the real network:\n    %s serve --around @YOU.bsky.social\n", program)
	return e.OutputError() // set if the reader is gone
}

// started returns the command that starts this program again: "go run ./cmd/skein" if Go built it for that.
func started(program string) string {
	if !strings.Contains(program, "go-build") { // Go's folder of such programs
		return program
	}
	if cgo, set := os.LookupEnv("CGO_ENABLED"); set {
		return "CGO_ENABLED=" + cgo + " go run ./cmd/skein" // with another value, Go would compile everything again
	}
	return "go run ./cmd/skein"
}

// show asks a query, and prints it, the command that asks it, and the first results.
func show(ctx context.Context, e *command.Environment, n *demo.Network, base, ask, title, expr string) error {
	q := questionOf(expr, 3)
	q.params.Set("limit", "3")
	began := time.Now()
	var a queryAnswer
	if err := (&app.Asker{Server: base, UserAgent: command.UserAgent(), Client: new(http.Client)}).Ask(ctx, q.method, q.params, &a); err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Fprintf(e.Stdout, "%s\n    %s'%s'\n", title, ask, expr)
	for _, did := range a.Members {
		fmt.Fprintf(e.Stdout, "      %s  @%s\n", did, n.Handle(did))
	}
	for _, it := range a.Items {
		fmt.Fprintf(e.Stdout, "      %s  liked by %d of these accounts\n", it.Member, it.Count)
	}
	more := "and more"
	if a.Total > 0 {
		more = fmt.Sprintf("%d in all", a.Total)
	}
	fmt.Fprintf(e.Stdout, "      … %s\n    in %.1f ms; on the page: %s/?%s\n\n", more, float64(took.Microseconds())/1000, base, url.Values{"q": {expr}}.Encode())
	return nil
}
