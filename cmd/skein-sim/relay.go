package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer/wire"
	"skein.blue/internal/command"
	"skein.blue/internal/sim/relay"
)

// relayOptions holds the flags of relay.
type relayOptions struct {
	relay.Options

	frames string
	listen string
	proofs string

	hosts      int
	hostFaults bool
}

// peakRate is the real network's peak so far, in events per second.
const peakRate = 1500

func relayCommand(e *command.Environment) *cli.Command {
	o := &relayOptions{}
	return subcommand("relay", "serve a made-up network, or recorded frames, with cursor replay", &o.Network, []cli.Flag{
		faultFlag(),
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
	}, func(ctx context.Context, c *cli.Command) error {
		if !c.IsSet("rate") && o.frames == "" {
			o.Rate = peakRate
		}
		if err := faults(c, &o.Faults, o.Rate); err != nil {
			return err
		}
		switch {
		case o.From < 0 || o.Events < 0 || o.Window < 1000:
			return command.UsageError("--from and --events must not be negative, and --window at least 1000 events")
		case o.proofs != "sized" && o.proofs != "full":
			return command.UsageError("--proofs %q: must be sized or full", o.proofs)
		case o.hosts > 0 && (o.proofs != "full" || o.Network.History > 0):
			return command.UsageError("--hosts needs --proofs full, which keeps repos to export, and cannot be combined with --past")
		case o.proofs == "full" && o.Faults.Corrupt > 0:
			return command.UsageError("--fault corrupt is for --proofs sized")
		case o.frames != "" && (c.IsSet("seed") || c.IsSet("accounts") || c.IsSet("fault") || c.IsSet("proofs")):
			return command.UsageError("--frames serves a recording; --seed, --accounts, --proofs and --fault are for a made-up network")
		}
		if err := runRelay(ctx, e, o); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		return nil
	})
}

func runRelay(ctx context.Context, e *command.Environment, o *relayOptions) error {
	o.Full, o.Past = o.proofs == "full", o.hosts > 0
	mux := http.NewServeMux()
	var handler http.Handler
	var run func(context.Context)
	what := "a network"
	if o.frames != "" {
		all, err := wire.ReadFile(o.frames)
		if err != nil {
			return err
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
	return serve(ctx, o.listen, mux, func(address net.Addr) {
		go run(ctx)
		fmt.Fprintf(e.Stderr, "serving %s on ws://%s\n", what, address)
	})
}

// serveHosts serves the hosts of a network, each on a port of its own.
func serveHosts(ctx context.Context, r *relay.Simulated, o *relayOptions) (*relay.Hosts, error) {
	name, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", o.listen, err)
	}
	h := relay.NewHosts(r, make([]string, o.hosts), o.hostFaults)
	for i := range o.hosts {
		address, failed := make(chan net.Addr, 1), make(chan error, 1)
		go func() {
			failed <- serve(ctx, net.JoinHostPort(name, "0"), h.Handler(i), func(a net.Addr) { address <- a })
		}()
		select {
		case a := <-address:
			h.Addresses[i] = a.String()
		case err := <-failed:
			return nil, fmt.Errorf("a host: %w", err)
		}
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
