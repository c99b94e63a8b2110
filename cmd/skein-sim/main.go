// Command skein-sim simulates an AT Protocol network: a relay that serves it, and a load test
// that feeds it to skein's indexer. It is a separate program so that the code for signed repos and
// their trees, which only it needs, is not part of skein.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

func main() { os.Exit(command.Main(commandLine)) }

var commandLine = command.Program{
	Name:  "skein-sim",
	Usage: "simulate an AT Protocol network: a relay, an archive, and a load test of skein",
	Commands: func(e *command.Environment) []*cli.Command {
		return []*cli.Command{relayCommand(e), archiveCommand(e), loadCommand(e), sizeCommand(e), verifyCommand(e), command.VersionCommand(e)}
	},
}

// subcommand returns a command that works on a network. n has the defaults of its flags; a command whose network has a
// past cannot do without. n is valid when run is called.
func subcommand(name, usage string, n *network.Options, flags []cli.Flag, run func(context.Context, *cli.Command) error) *cli.Command {
	if n.Accounts == 0 {
		n.Accounts = 1_000_000
	}
	least := min(n.History, 1)
	return &cli.Command{
		Name: name, Usage: usage,
		Flags: append([]cli.Flag{
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "seed of the network; the same seed makes the same events", Destination: &n.Seed},
			&cli.IntFlag{Name: "accounts", Value: n.Accounts, Usage: "population; activity and followers follow power laws", Destination: &n.Accounts},
			&cli.IntFlag{Name: "past", Value: n.History, Usage: "mean number of records per account from the three years before the stream, which skein-sim archive serves; the stream then has the shape of a network of that age", Destination: &n.History},
			&cli.BoolFlag{Name: "only-plc", Usage: "no did:web accounts, whose DID documents nobody serves; for --verify full", Destination: &n.OnlyPLC},
		}, flags...),
		Action: func(ctx context.Context, c *cli.Command) error {
			if n.Accounts < 1 || n.History < least {
				return command.UsageError("--accounts must be at least 1, and --past %d", least)
			}
			return run(ctx, c)
		},
	}
}

// faultFlag returns the flag of the relay's faults.
func faultFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "fault", Usage: "fault of the relay, may be repeated: stall=60s@30s (30 s after the start), repeat=60s@90s, jump=10000000@20s, burst=10x5s@20s, corrupt=0.01"}
}

// faults parses the faults, and checks the rate that they need.
func faults(c *cli.Command, o *relay.Faults, rate float64) error {
	*o = relay.Faults{}
	for _, f := range c.StringSlice("fault") {
		if err := o.Set(f); err != nil {
			return command.UsageError("--fault %v", err)
		}
	}
	switch {
	case rate < 0:
		return command.UsageError("--rate %v is negative", rate)
	case o.NeedRate() && rate == 0:
		return command.UsageError("--fault needs --rate, except for corrupt")
	}
	return nil
}

// storeFlags returns the flags of a new store.
func storeFlags(e *command.Environment, o *app.StoreOptions) []cli.Flag {
	flags := command.StoreFlags(e, o)
	for _, f := range flags {
		if store, ok := f.(*cli.StringFlag); ok && store.Name == "store" {
			store.Value, store.DefaultText = "", "a temporary folder"
		}
	}
	return flags
}

// prepare gives a load what it needs of this process. It makes a temporary store, which end removes, unless the user has named one.
func prepare(e *command.Environment, c *cli.Command, o *load.Options) (end func() error, err error) {
	if !c.IsSet("log-level") {
		e.Level = "warn"
	}
	o.Stderr, o.Simulator, o.Archive = e.Stderr, launchRelay, launchArchive
	end = func() error { return nil }
	if o.Store.Store == "" {
		if o.Store.Store, err = os.MkdirTemp("", "skein-sim-"+c.Name); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		end = func() error { return os.RemoveAll(o.Store.Store) }
	}
	if err := e.Prepare(&o.Store); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// runLoad runs a load, and prints the differences that it finds.
func runLoad(e *command.Environment, name string, run func() ([]string, error)) error {
	problems, err := run()
	switch {
	case errors.Is(err, load.ErrOther):
		return command.UsageError("%s: %v", name, err)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, p := range problems {
		fmt.Fprintln(e.Stderr, name+": difference:", p)
	}
	if len(problems) > 0 {
		return command.ErrQuiet
	}
	return nil
}

// serve serves h until ctx ends. begin is called with the address once it is known.
func serve(ctx context.Context, listen string, h http.Handler, begin func(address net.Addr)) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", listen, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	begin(ln.Addr())
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
