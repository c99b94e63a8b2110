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

	"skein.blue/internal/command"
	"skein.blue/internal/frames"
	"skein.blue/internal/sim/relay"
)

// relayOptions holds the flags of relay.
type relayOptions struct {
	relay.Options

	frames string
	listen string
	proofs string
	faults []string

	hosts      int
	hostFaults bool
}

// peakRate is the real network's peak so far, in events per second.
const peakRate = 1500

func relayCommand(e *command.Environment) *cli.Command {
	o := &relayOptions{}
	return &cli.Command{
		Name: "relay", Usage: "serve a made-up network, or recorded frames, with cursor replay",
		Flags: append(networkFlags(&o.Options),
			&cli.StringFlag{Name: "frames", Usage: "recorded .frames file to serve from memory, instead of a made-up network", Destination: &o.frames},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3212", Usage: "address of com.atproto.sync.subscribeRepos", Destination: &o.listen},
			&cli.FloatFlag{Name: "rate", DefaultText: "1500; with --frames, all events are in the past and need a cursor", Usage: "events per second; 0: as many as the subscriber reads", Destination: &o.Rate},
			&cli.StringFlag{Name: "proofs", Value: "sized", Usage: "sized: commits of realistic size, with true records and commit blocks; full: verifiable commits, from whole repos", Destination: &o.proofs},
			&cli.Int64Flag{Name: "from", Usage: "events of the network before the start", Destination: &o.From},
			&cli.TimestampFlag{Name: "from-time", DefaultText: "now", Usage: "time of those events, such as 2026-11-22T06:00:00.123Z: that of the last one, for consumers that have applied it", Config: cli.TimestampConfig{Layouts: []string{time.RFC3339Nano}}, Destination: &o.FromTime},
			&cli.Int64Flag{Name: "events", DefaultText: "no end", Usage: "events to send; connections stay open after the last", Destination: &o.Events},
			&cli.IntFlag{Name: "window", Value: relay.DefaultWindow, Usage: "events to keep for subscribers with a cursor", Destination: &o.Window},
			&cli.IntFlag{Name: "hosts", Usage: "hosts that serve the repos (listRepos, getRepo, DID documents), each on its own port; adds listHosts; needs --proofs full", Destination: &o.hosts},
			&cli.BoolFlag{Name: "host-faults", Usage: "make hosts faulty at times: one limits its rate, one hangs, one lies; needs at least 4 --hosts", Destination: &o.hostFaults},
			&cli.BoolFlag{Name: "hold", Usage: "start the stream at the first subscription", Destination: &o.Hold},
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			o.faults = c.StringSlice("fault")
			return runRelay(ctx, e, o, c.IsSet)
		},
	}
}

// networkFlags returns the flags that relay and load share.
func networkFlags(o *relay.Options) []cli.Flag {
	return []cli.Flag{
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "seed of the network; the same seed makes the same events", Destination: &o.Network.Seed},
		&cli.IntFlag{Name: "accounts", Value: 1_000_000, Usage: "population; activity and followers follow power laws", Destination: &o.Network.Accounts},
		&cli.IntFlag{Name: "past", Usage: "mean number of records per account from the three years before the stream, which skein-sim archive serves; the stream then has the shape of a network of that age", Destination: &o.Network.History},
		&cli.BoolFlag{Name: "only-plc", Usage: "no did:web accounts, whose DID documents nobody serves; for --verify full", Destination: &o.Network.OnlyPLC},
		&cli.StringSliceFlag{Name: "fault", Usage: "fault of the relay, may be repeated: stall=60s@30s (30 s after the start), repeat=60s@90s, jump=10000000@20s, burst=10x5s@20s, corrupt=0.01"},
	}
}

// faults parses the faults, and checks the options that they need.
func faults(o *relay.Options, flags []string) error {
	for _, f := range flags {
		if err := o.Faults.Set(f); err != nil {
			return command.UsageError("--fault %v", err)
		}
	}
	if o.Faults.NeedRate() && o.Rate == 0 {
		return command.UsageError("--fault needs --rate, except for corrupt")
	}
	return nil
}

func runRelay(ctx context.Context, e *command.Environment, o *relayOptions, isSet func(flag string) bool) error {
	if !isSet("rate") && o.frames == "" {
		o.Rate = peakRate
	}
	if err := faults(&o.Options, o.faults); err != nil {
		return err
	}
	switch {
	case o.Rate < 0:
		return command.UsageError("--rate %v is negative", o.Rate)
	case o.From < 0 || o.Events < 0:
		return command.UsageError("--from and --events must not be negative")
	case o.Window < 1000:
		return command.UsageError("--window %d: must be at least 1000 events", o.Window)
	case o.Network.Accounts < 1:
		return command.UsageError("--accounts %d: must be at least 1", o.Network.Accounts)
	case o.Network.History < 0:
		return command.UsageError("--past %d is negative", o.Network.History)
	case o.Network.History > 0 && o.hosts > 0:
		return command.UsageError("--hosts cannot be combined with --past")
	case o.proofs != "sized" && o.proofs != "full":
		return command.UsageError("--proofs %q: must be sized or full", o.proofs)
	case o.proofs == "full" && o.Faults.Corrupt > 0:
		return command.UsageError("--fault corrupt is for --proofs sized")
	case o.frames != "" && (isSet("seed") || isSet("accounts") || isSet("fault") || isSet("proofs")):
		return command.UsageError("--frames serves a recording; --seed, --accounts, --proofs and --fault are for a made-up network")
	}
	if o.hosts > 0 && o.proofs != "full" {
		return command.UsageError("--hosts needs --proofs full, which keeps repos to export")
	}
	o.Full, o.Past = o.proofs == "full", o.hosts > 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /xrpc/_health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":"`+command.Version()+`"}`)
	})
	var handler http.Handler
	var run func(context.Context)
	what := "a network"
	if o.frames != "" {
		all, err := frames.ReadFile(o.frames)
		if err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		r := relay.NewRecorded(nil)
		handler, run = r, func(ctx context.Context) { playFrames(ctx, r, all, o.Rate) }
		what = fmt.Sprintf("%d frames", len(all))
	} else {
		r := relay.NewSimulated(o.Options)
		handler, run = r, r.Run
		host := func(int) string { return o.listen }
		if o.hosts > 0 {
			h, err := serveHosts(ctx, r, o)
			if err != nil {
				return err
			}
			mux.HandleFunc("GET /xrpc/com.atproto.sync.listHosts", h.ListHosts)
			mux.Handle("GET /xrpc/com.atproto.sync.listRepos", h.Handler(-1))
			host = h.Of
		}
		if o.Full {
			mux.Handle("GET /{did}", r.Documents(host))
			mux.Handle("GET /export", r.Export(host))
		}
	}
	mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", handler)
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("relay: --listen %s: %w", o.listen, err)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	go run(ctx)
	fmt.Fprintf(e.Stderr, "serving %s on ws://%s\n", what, ln.Addr())
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// serveHosts serves the hosts of a network, each on a port of its own.
func serveHosts(ctx context.Context, r *relay.Simulated, o *relayOptions) (*relay.Hosts, error) {
	var listeners []net.Listener
	var addresses []string
	name, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return nil, command.UsageError("--listen %s: %v", o.listen, err)
	}
	for range o.hosts {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(name, "0"))
		if err != nil {
			return nil, fmt.Errorf("relay: a host: %w", err)
		}
		listeners = append(listeners, ln)
		addresses = append(addresses, ln.Addr().String())
	}
	h := relay.NewHosts(r, addresses, o.hostFaults)
	for i, ln := range listeners {
		srv := &http.Server{Handler: h.Handler(i), ReadHeaderTimeout: 10 * time.Second}
		context.AfterFunc(ctx, func() { _ = srv.Close() })
		go func() { _ = srv.Serve(ln) }()
	}
	return h, nil
}

// playFrames sends recorded frames at a rate, or all at once if it is 0.
func playFrames(ctx context.Context, r *relay.Recorded, all [][]byte, rate float64) {
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
}
