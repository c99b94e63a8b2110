// Command skein keeps an always current graph of who follows whom and who
// likes what on the AT Protocol network, and answers set questions about it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"
)

// Exit codes.
const (
	exitFailed = 1 // it failed, or a difference was found
	exitUsage  = 2 // the command line is wrong
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	env := &environment{stdout: stdout, stderr: stderr}
	cmd := &cli.Command{
		Name:    "skein",
		Version: version(),
		Usage:   "who follows whom and who likes what on the AT Protocol network, as sets",
		Commands: []*cli.Command{
			serveCommand(env), replayCommand(env), queryCommand(env), checkCommand(env), statsCommand(env), idsCommand(env), exportCommand(env), importCommand(env), simulateCommand(env), loadCommand(env), versionCommand(env),
		},
		Writer:         stdout,
		ErrWriter:      stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   func(_ context.Context, _ *cli.Command, err error, _ bool) error { return usage("%v", err) },
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usage("there is no command %q; see skein help", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	began := false // errors before a command has begun are the command line's, or its environment's
	for _, c := range cmd.Commands {
		c.OnUsageError = cmd.OnUsageError
		action := c.Action
		c.Action = func(ctx context.Context, c *cli.Command) error {
			began = true
			return action(ctx, c)
		}
	}
	err := cmd.Run(ctx, args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errQuiet):
		return exitFailed
	}
	fmt.Fprintln(stderr, "skein:", err)
	if errors.Is(err, errUsage) || !began {
		return exitUsage
	}
	return exitFailed
}

// errQuiet ends a command with exitFailed; what there was to say has been said.
var errQuiet = errors.New("failed")

// environment is what commands write to.
type environment struct {
	stdout, stderr io.Writer
	level          string
}

func (e *environment) terminal() bool {
	f, ok := e.stderr.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// logger makes the program's logger: text for people, JSON for machines.
func (e *environment) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.level)); err != nil {
		return nil, usage("--log-level %q: use debug, info, warn or error", e.level)
	}
	o := &slog.HandlerOptions{Level: level}
	if e.terminal() {
		return slog.New(slog.NewTextHandler(e.stderr, o)), nil
	}
	return slog.New(slog.NewJSONHandler(e.stderr, o)), nil
}

// noArguments refuses what stands behind the flags.
func noArguments(c *cli.Command) error {
	if c.Args().Present() {
		return usage("%s takes no argument, got %q", c.Name, c.Args().First())
	}
	return nil
}
