package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

// peakRate is the real network's peak so far, in events per second.
const peakRate = 1500

func relayCommand(e *command.Environment) *cli.Command {
	var o load.SimulatorOptions
	var proofs, all, frames string
	return subcommand("relay", "serve a made-up network, or recorded frames, with cursor replay", &o.Network, []cli.Flag{
		faultFlag(),
		&cli.StringFlag{Name: "frames", Usage: "recorded .frames file to serve from memory, instead of a made-up network; all its events are in the past, and need a cursor", Destination: &frames},
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3212", Usage: "address of com.atproto.sync.subscribeRepos", Destination: &o.Address},
		&cli.FloatFlag{Name: "rate", Value: peakRate, Usage: "events per second; 0: as many as the subscriber reads", Destination: &o.Rate},
		&cli.StringFlag{Name: "proofs", Value: "sized", Usage: "sized: commits of realistic size, with true records and commit blocks; full: verifiable commits, from whole repos", Destination: &proofs},
		&cli.StringFlag{Name: "options", Hidden: true, Usage: "all options, from skein-sim load", Destination: &all},
	}, func(ctx context.Context, c *cli.Command) error {
		if err := faults(c, &o.Faults, o.Rate); err != nil {
			return err
		}
		switch o.Full = proofs == "full"; {
		case all != "":
			if err := json.Unmarshal([]byte(all), &o); err != nil {
				return command.UsageError("--options: %v", err)
			}
		case !o.Full && proofs != "sized":
			return command.UsageError("--proofs %q: must be sized or full", proofs)
		case o.Full && o.Faults.Corrupt > 0:
			return command.UsageError("--fault corrupt is for --proofs sized")
		}
		if frames != "" {
			return serveFrames(ctx, e, frames, o.Address)
		}
		if err := runRelay(ctx, e, &o); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		return nil
	})
}

func runRelay(ctx context.Context, e *command.Environment, o *load.SimulatorOptions) error {
	o.Full, o.Past = o.Full || o.Hosts > 0, o.Hosts > 0
	mux, r := http.NewServeMux(), relay.NewSimulated(o.Options)
	host := func(int) string { return o.Address }
	if o.Hosts > 0 {
		h := relay.NewHosts(r, make([]string, o.Hosts), !o.Healthy)
		for i := range o.Hosts {
			address, failed := make(chan net.Addr, 1), make(chan error, 1)
			go func() { failed <- serve(ctx, "127.0.0.1:0", h.Handler(i), func(a net.Addr) { address <- a }) }()
			select {
			case a := <-address:
				h.Addresses[i] = a.String()
			case err := <-failed:
				return fmt.Errorf("a host: %w", err)
			}
		}
		mux.HandleFunc("GET /xrpc/com.atproto.sync.listHosts", h.ListHosts)
		mux.Handle("GET /xrpc/com.atproto.sync.listRepos", h.Handler(-1))
		host = h.Of
	}
	if o.Full {
		mux.Handle("GET /{did}", r.Documents(host))
	}
	mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", r)
	return serve(ctx, o.Address, mux, func(address net.Addr) {
		go r.Run(ctx)
		fmt.Fprintf(e.Stderr, "serving a network on ws://%s\n", address)
	})
}

// serveFrames serves a recording.
func serveFrames(ctx context.Context, e *command.Environment, name, address string) error {
	all, err := synth.ReadFrames(name)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	r, mux := relay.NewRecorded(all), http.NewServeMux()
	mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", r)
	return serve(ctx, address, mux, func(address net.Addr) {
		fmt.Fprintf(e.Stderr, "serving %d frames on ws://%s\n", len(all), address)
	})
}
