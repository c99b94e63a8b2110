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
	"regexp"
	"strings"
	"sync"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"
)

// Exit codes.
const (
	exitFailed = 1  // it failed, or a difference was found
	exitUsage  = 64 // the command line is wrong (sysexits.h). 2 is a crash of the Go runtime
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

func main() {
	env := &environment{stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(run(env.stop.listen(os.Stderr), env, os.Args))
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, env *environment, args []string) int {
	stdout, stderr := env.stdout, env.stderr
	cmd := &cli.Command{
		Name:    "skein",
		Version: version(),
		Usage:   "who follows whom and who likes what on the AT Protocol network, as sets",
		Commands: []*cli.Command{
			serveCommand(env), replayCommand(env), queryCommand(env), checkCommand(env), statsCommand(env), idsCommand(env), exportCommand(env), importCommand(env), upgradeCommand(env), simulateCommand(env), loadCommand(env), versionCommand(env),
		},
		Writer:         stdout,
		ErrWriter:      stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   usageError,
		Action:         chooseCommand,

		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			c.Usage = "print a script that completes commands and flags: bash, zsh, fish or pwsh"
		},
	}
	began := false // errors before a command has begun are the command line's, or its environment's
	var prepare func(commands []*cli.Command)
	prepare = func(commands []*cli.Command) {
		for _, c := range commands {
			c.OnUsageError = usageError
			prepare(c.Commands)
			action := c.Action
			c.Action = func(ctx context.Context, c *cli.Command) error {
				began = true
				return action(ctx, c)
			}
		}
	}
	prepare(cmd.Commands)
	err := cmd.Run(ctx, args)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errQuiet):
		return exitFailed
	}
	fmt.Fprintln(stderr, "skein:", plain(err))
	if errors.Is(err, errUsage) || !began {
		return exitUsage
	}
	return exitFailed
}

// usageError says what is wrong with a flag, and which one may be meant.
func usageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return usage("%v", err)
	}
	name = strings.TrimLeft(name, "-")
	message := fmt.Sprintf("%s has no flag --%s", c.FullName(), name)
	if near := cli.SuggestFlag(c.Flags, name, false); near != "" && distance(near, "--"+name) < 4 {
		message += "; did you mean " + near + "?"
	}
	return usage("%s", message)
}

// chooseCommand is what a command that only has others does by itself.
func chooseCommand(_ context.Context, c *cli.Command) error {
	if !c.Args().Present() {
		if c.Root() == c {
			return cli.ShowRootCommandHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	given := c.Args().First()
	message := fmt.Sprintf("there is no command %q; see %s help", strings.TrimPrefix(c.FullName()+" ", "skein ")+given, c.FullName())
	if near := cli.SuggestCommand(c.Commands, given); near != "" && distance(near, given) < 3 {
		message += "; did you mean " + near + "?"
	}
	return usage("%s", message)
}

// distance is about how many letters two words differ in.
func distance(a, b string) int {
	d := max(len(a), len(b)) - min(len(a), len(b))
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && (i == 0 || i >= len(b) || a[i] != b[i-1]) && (i+1 >= len(b) || a[i] != b[i+1]) {
			d++
		}
	}
	return d
}

// inner are the names of packages before errors, which say nothing to who reads
// the message.
var inner = regexp.MustCompile(`(?m)(^|[ (:])(?:app|consumer|fdbkv|frames|graph|intern|kv|memkv|pebblekv|query|usage|wire): `)

// plain writes an error without the names of packages.
func plain(err error) string {
	s := err.Error()
	for {
		t := inner.ReplaceAllString(s, "$1")
		if t == s {
			return s
		}
		s = t
	}
}

// errQuiet ends a command with exitFailed; what there was to say has been said.
var errQuiet = errors.New("failed")

// environment is what commands write to.
type environment struct {
	stdout, stderr io.Writer
	level          string
	stop           stopping
	dying          sync.Once
}

// fatal ends the process where the store can go on no longer: the engine waits for
// nothing but that. What was committed is kept.
func (e *environment) fatal(err error) {
	e.dying.Do(func() {
		fmt.Fprintln(e.stderr, "skein:", plain(err))
		os.Exit(exitFailed)
	})
	select {} // another goroutine is ending the process
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
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(plain(err))
		}
		return a
	}}
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
