package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

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

func loadCommand(e *command.Environment) *cli.Command {
	var o load.Options
	var sim relay.Options
	var markdown bool
	flags := append(networkFlags(&sim),
		&cli.FloatFlag{Name: "rate", Value: 150_000, Usage: "events offered per second; 0: as many as the indexer takes", Destination: &o.Rate},
		&cli.DurationFlag{Name: "duration", Value: 2 * time.Minute, Usage: "how long to offer events", Destination: &o.Duration},
		&cli.Int64Flag{Name: "prefill", Usage: "edges to index before the clock starts", Destination: &o.Prefill},
		&cli.Int64Flag{Name: "backfill", Usage: "events before the index starts; it fetches all repos meanwhile, from hosts that are partly faulty", Destination: &o.Backfill},
		&cli.BoolFlag{Name: "healthy-hosts", Usage: "use no faulty hosts for --backfill", Destination: &o.Healthy},
		&cli.BoolFlag{Name: "kill", Usage: "kill the relay half-way, and restart it", Destination: &o.Kill},
		&cli.BoolFlag{Name: "no-compaction", Usage: "measure the store without compacting it first", Destination: &o.KeepUncompacted},
		&cli.StringFlag{Name: "cpuprofile", Usage: "file for a CPU profile of the indexer, without the prefill and the comparison", Destination: &o.Profile},
		&cli.BoolFlag{Name: "markdown", Usage: "print a table instead of JSON", Destination: &markdown},
	)
	flags = append(flags, storeFlags(e, &o.Store)...)
	return &cli.Command{
		Name:  "load",
		Usage: "run the load test: index a simulated network, and compare the result with it",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			o.Faults, sim.Rate = relay.Faults{}, o.Rate
			if err := faults(&sim, c.StringSlice("fault")); err != nil {
				return err
			}
			o.Network, o.Faults = sim.Network, sim.Faults
			switch {
			case o.Rate < 0:
				return command.UsageError("--rate %v is negative", o.Rate)
			case o.Duration <= 0:
				return command.UsageError("--duration %v: must be more than 0", o.Duration)
			case o.Backfill < 0:
				return command.UsageError("--backfill %d is negative", o.Backfill)
			case o.Backfill > 0 && (o.Prefill > 0 || o.Kill || o.Rate == 0 || len(c.StringSlice("fault")) > 0):
				return command.UsageError("--backfill needs --rate, and cannot be combined with --prefill, --kill or --fault")
			case o.Network.History < 0:
				return command.UsageError("--past %d is negative", o.Network.History)
			case o.Network.History > 0 && (o.Backfill > 0 || o.Faults.Jump > 0):
				return command.UsageError("--past cannot be combined with --backfill or --fault jump")
			case o.Prefill < 0:
				return command.UsageError("--prefill %d is negative", o.Prefill)
			case o.Network.Accounts < 1:
				return command.UsageError("--accounts %d: must be at least 1", o.Network.Accounts)
			case o.Kill && o.Rate == 0:
				return command.UsageError("--kill needs --rate")
			case o.Kill && o.Faults.Jump > 0:
				return command.UsageError("--kill and --fault jump cannot be combined: the restarted relay would not know about the jump")
			case o.Prefill > 0 && (o.Faults.Corrupt > 0 || o.Faults.Jump > 0):
				return command.UsageError("--prefill cannot be combined with --fault corrupt or --fault jump")
			}
			if o.Backfill > 0 {
				o.Hosts = 5
			}
			if !c.IsSet("log-level") {
				e.Level = "warn"
			}
			return runLoad(ctx, e, o, c.IsSet("store"), markdown)
		},
	}
}

func runLoad(ctx context.Context, e *command.Environment, o load.Options, keepStore, markdown bool) (err error) {
	if !keepStore {
		if o.Store.Store, err = os.MkdirTemp("", "skein-sim-load"); err != nil {
			return fmt.Errorf("load: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Store.Store)) }()
	}
	if err := e.Prepare(&o.Store); err != nil {
		return err
	}
	o.Stderr, o.Simulator, o.Archive = e.Stderr, launchSimulator, launchArchive
	if e.Terminal() {
		bar := e.Progress("", 0)
		defer bar.End()
		o.Progress = bar.Of
	}
	report, problems, err := load.Run(ctx, o)
	if errors.Is(err, load.ErrOther) {
		return command.UsageError("load: %v", err)
	}
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if markdown {
		head, row := report.Markdown()
		fmt.Fprint(e.Stdout, head, row)
	} else if err := json.NewEncoder(e.Stdout).Encode(report); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, p := range problems {
		fmt.Fprintln(e.Stderr, "load: difference:", p)
	}
	if len(problems) > 0 {
		return command.ErrQuiet
	}
	return nil
}

// simulator is skein-sim relay or archive in another process.
type simulator struct {
	what    string
	cmd     *exec.Cmd
	address string
	killed  bool
}

// launchSimulator starts a simulator, and waits until it listens.
func launchSimulator(ctx context.Context, o load.SimulatorOptions) (load.Simulator, error) {
	listen := o.Address
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	args := []string{
		"relay", "--hold", "--listen", listen,
		"--seed", strconv.FormatUint(o.Network.Seed, 10), "--accounts", strconv.Itoa(o.Network.Accounts), "--past", strconv.Itoa(o.Network.History),
		"--rate", strconv.FormatFloat(o.Rate, 'f', -1, 64), "--from", strconv.FormatInt(o.From, 10),
		"--events", strconv.FormatInt(o.Events, 10), "--window", strconv.Itoa(o.Window),
	}
	if !o.FromTime.IsZero() {
		args = append(args, "--from-time", o.FromTime.UTC().Format(time.RFC3339Nano))
	}
	if o.Hosts > 0 {
		args = append(args, "--proofs", "full", "--hosts", strconv.Itoa(o.Hosts))
		if !o.Healthy {
			args = append(args, "--host-faults")
		}
	}
	for _, f := range o.Faults.List() {
		args = append(args, "--fault", f)
	}
	return launch(ctx, "relay", "ws://", args)
}

// launchArchive starts the archive of a network's history, and waits until it listens.
func launchArchive(ctx context.Context, address string, o network.Options) (load.Simulator, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	return launch(ctx, "archive", "http://", []string{
		"archive", "--listen", address, "--seed", strconv.FormatUint(o.Seed, 10),
		"--accounts", strconv.Itoa(o.Accounts), "--past", strconv.Itoa(o.History),
	})
}

// launch starts another process of this program, and waits until it prints the address, after the scheme, on
// which it listens.
func launch(ctx context.Context, what, scheme string, args []string) (load.Simulator, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	s := &simulator{what: what, cmd: exec.CommandContext(ctx, self, args...)}
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // one core produces twice the needed rate; two would compete with the indexer
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 5 * time.Second
	out, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("starting skein-sim %s: %w", what, err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting skein-sim %s: %w", what, err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), scheme)
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("skein-sim %s did not start: %s", what, line), s.cmd.Wait())
	}
	s.address = address
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return s, nil
}

// Address implements load.Simulator.
func (s *simulator) Address() string { return s.address }

// Usage implements load.Simulator.
func (s *simulator) Usage() (cpu time.Duration, peak int64) {
	return load.UsageOf(strconv.Itoa(s.cmd.Process.Pid))
}

// Kill implements load.Simulator.
func (s *simulator) Kill() {
	s.killed = true
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // reports the kill
}

// Stop implements load.Simulator.
func (s *simulator) Stop() error {
	if s.killed {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping skein-sim %s: %w", s.what, err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("skein-sim %s: %w", s.what, err)
	}
	return nil
}
