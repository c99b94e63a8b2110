package main

import (
	"bufio"
	"cmp"
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

	"skein.blue/internal/command"
	"skein.blue/internal/sim/load"
	"skein.blue/internal/sim/network"
)

func loadCommand(e *command.Environment) *cli.Command {
	var o load.Options
	flags := []cli.Flag{
		faultFlag(),
		&cli.FloatFlag{Name: "rate", Value: 150_000, Usage: "events offered per second; 0: as many as the indexer takes", Destination: &o.Rate},
		&cli.DurationFlag{Name: "duration", Value: 2 * time.Minute, Usage: "how long to offer events", Destination: &o.Duration},
		&cli.Int64Flag{Name: "backfill", Usage: "events before the index starts; it fetches all repos meanwhile, from hosts that are partly faulty", Destination: &o.Backfill},
		&cli.IntFlag{Name: "around", Usage: "with --backfill: index only a part of the network, around this many of its most active accounts, and measure once the part is in place", Destination: &o.Around},
		&cli.BoolFlag{Name: "healthy-hosts", Usage: "use no faulty hosts for --backfill", Destination: &o.Healthy},
		&cli.BoolFlag{Name: "posts", Usage: "also index posts, as skein serve --posts does; without a comparison", Validator: o.Store.AddPosts},
		&cli.BoolFlag{Name: "kill", Usage: "kill the relay half-way, and restart it", Destination: &o.Kill},
		&cli.StringFlag{Name: "cpuprofile", Usage: "file for a CPU profile of the indexer, without the comparison", Destination: &o.Profile},
	}
	return subcommand("load", "run the load test: index a simulated network, and compare the result with it", &o.Network,
		append(flags, storeFlags(e, &o.Store)...), func(ctx context.Context, c *cli.Command) (err error) {
			if err := faults(c, &o.Faults, o.Rate); err != nil {
				return err
			}
			switch {
			case o.Duration <= 0 || o.Backfill < 0:
				return command.UsageError("--duration must be more than 0, and --backfill not negative")
			case o.Backfill > 0 && (o.Kill || o.Rate == 0 || o.Network.History > 0 || c.IsSet("fault")):
				return command.UsageError("--backfill needs --rate, and cannot be combined with --past, --kill or --fault")
			case o.Around > 0 && o.Backfill == 0:
				return command.UsageError("--around needs --backfill, which makes the repos of the part")
			case o.Kill && o.Rate == 0:
				return command.UsageError("--kill needs --rate")
			case o.Faults.Jump > 0 && (o.Kill || o.Network.History > 0):
				return command.UsageError("--fault jump cannot be combined with --past or --kill: the restarted relay would not know about the jump")
			}
			if o.Backfill > 0 {
				o.Hosts, o.Network.OnlyPLC = 5, true // nobody serves the DID documents of the network's did:web
			}
			end, err := prepare(e, c, &o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, end()) }()
			return runLoad(e, "load", func() ([]string, error) {
				report, problems, err := load.Run(ctx, o)
				if err == nil {
					err = json.NewEncoder(e.Stdout).Encode(report)
				}
				return problems, err
			})
		})
}

// simulator is skein-sim relay or archive in another process.
type simulator struct {
	what    string
	cmd     *exec.Cmd
	address string
	killed  bool
}

// launchRelay starts a relay, and waits until it listens.
func launchRelay(ctx context.Context, o load.SimulatorOptions) (load.Simulator, error) {
	o.Address = cmp.Or(o.Address, "127.0.0.1:0")
	all, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("the options of the relay: %w", err)
	}
	return launch(ctx, "relay", "ws://", "--options", string(all))
}

// launchArchive is launchRelay for the archive of a network's history.
func launchArchive(ctx context.Context, address string, o network.Options) (load.Simulator, error) {
	return launch(ctx, "archive", "http://", "--listen", cmp.Or(address, "127.0.0.1:0"), "--seed", strconv.FormatUint(o.Seed, 10),
		"--accounts", strconv.Itoa(o.Accounts), "--past", strconv.Itoa(o.History), "--only-plc="+strconv.FormatBool(o.OnlyPLC))
}

// launch starts another process of this program, and waits until it prints the address, after the scheme, on
// which it listens.
func launch(ctx context.Context, what, scheme string, args ...string) (load.Simulator, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	s := &simulator{what: what, cmd: exec.CommandContext(ctx, self, append([]string{what}, args...)...)}
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // one core produces twice the needed rate; two would compete with the indexer
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 5 * time.Second
	out, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
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
