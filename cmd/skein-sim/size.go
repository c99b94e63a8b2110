package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/network"
)

func sizeCommand(e *command.Environment) *cli.Command {
	o := load.Options{Network: network.Options{Accounts: 57_344, History: 350}}
	var n load.Network
	flags := append([]cli.Flag{
		&cli.DurationFlag{Name: "duration", Value: 30 * time.Second, Usage: "how long to measure at full rate, and at the mean rate", Destination: &o.Duration},
		&cli.FloatFlag{Name: "mean", Value: 1000, Usage: "events per second of the network to plan for, on average", Destination: &n.Mean},
		&cli.FloatFlag{Name: "peak", Value: 1500, Usage: "its events per second at the peak", Destination: &n.Peak},
		&cli.FloatFlag{Name: "history", Value: 15e9, Usage: "its edges, all history", Destination: &n.Edges},
	}, storeFlags(e, &o.Store)...)
	return subcommand("size", "measure a store of a simulated network, and compute from it what a real one needs", &o.Network, flags,
		func(ctx context.Context, c *cli.Command) (err error) {
			switch {
			case o.Duration <= 0:
				return command.UsageError("--duration %v: must be more than 0", o.Duration)
			case !(n.Mean > 0) || !(n.Peak >= n.Mean) || !(n.Edges >= 0):
				return command.UsageError("--mean must be more than 0, --peak at least that, and --history not negative")
			case !app.InFolder(o.Store.Store):
				return command.UsageError("--store %s: a store in a folder is measured", o.Store.Store)
			}
			end, err := prepare(e, c, &o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, end()) }()
			return runLoad(e, "size", func() ([]string, error) { return measure(ctx, e, o, n) })
		})
}

// measure measures at full rate, and then at the mean rate, in one store.
func measure(ctx context.Context, e *command.Environment, o load.Options, n load.Network) ([]string, error) {
	full, problems, err := load.Run(ctx, o)
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	o.Rate = n.Mean
	var written, logical int64
	var counting error
	o.Inspect = func(x *app.Index) {
		after, err := writtenBytes()
		written = after - written
		counting = errors.Join(err, x.KV.View(ctx, func(r kv.Reader) error {
			return kv.ScanPrefix(r, nil, func(k, v []byte) error {
				logical += int64(len(k) + len(v))
				return ctx.Err()
			})
		}))
	}
	if written, err = writtenBytes(); err != nil {
		return nil, err
	}
	mean, problems, err := load.Run(ctx, o)
	if err = errors.Join(err, counting); err != nil || len(problems) > 0 {
		return problems, err
	}
	events := float64(mean.Events)
	fmt.Fprint(e.Stdout, load.Markdown(load.Measured{
		Edges: mean.Edges, BytesPerEdge: mean.BytesPerEdge, LogicalPer: float64(logical) / float64(mean.Edges),
		EdgesPer:   float64(mean.Edges-full.Edges) / events,
		FrameBytes: mean.MegabytesPerSecond * 1e6 / mean.EventsPerSecond, WrittenPer: float64(written) / events,
		IdleCPU: mean.CPUSeconds / events, BusyCPU: full.CPUSeconds / float64(full.Events), FullRate: full.EventsPerSecond,
		Memory: full.PeakRSS, // that of the second run includes the comparison after the first
		Budget: cmp.Or(o.Store.Memory, app.DefaultMemory()),
	}, n))
	return nil, nil
}

// writtenBytes returns how many bytes this process has had written to disks so far.
func writtenBytes() (int64, error) {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, fmt.Errorf("reading what was written needs Linux: %w", err)
	}
	_, count, _ := strings.Cut(string(b), "\nwrite_bytes:")
	var n int64
	if _, err := fmt.Sscan(count, &n); err != nil {
		return 0, fmt.Errorf("write_bytes in /proc/self/io: %w", err)
	}
	return n, nil
}
