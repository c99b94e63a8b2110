package command

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

	"skein.blue/internal/human"
)

// Exit codes.
const (
	ExitFailed = 1  // it failed, or a difference was found
	ExitUsage  = 64 // the command line is wrong (sysexits.h). 2 is a crash of the Go runtime
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

// UsageError is an error of the command line.
func UsageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

// A Program is what Main runs.
type Program struct {
	Name     string
	Usage    string
	Commands func(*Environment) []*cli.Command
	// Moved says where commands are that were the program's once.
	Moved map[string]string
}

// Main runs the command line of the process, until it ends or a signal ends it, and
// returns the exit code.
func Main(p Program) int {
	env := &Environment{Stdout: os.Stdout, Stderr: os.Stderr}
	return Run(env.Stop.Listen(os.Stderr), env, p, os.Args)
}

// Run runs a command line and returns the exit code.
func Run(ctx context.Context, env *Environment, p Program, args []string) int {
	env.wrap()
	stdout, stderr := env.Stdout, env.Stderr
	if len(args) > 1 && p.Moved[args[1]] != "" {
		fmt.Fprintf(stderr, "%s: %s %s is %s now\n", p.Name, p.Name, args[1], p.Moved[args[1]])
		return ExitUsage
	}
	cmd := &cli.Command{
		Name:           p.Name,
		Version:        Version(),
		Usage:          p.Usage,
		Commands:       p.Commands(env),
		Writer:         stdout,
		ErrWriter:      stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   flagError,
		Action:         ChooseCommand,

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
			c.OnUsageError = flagError
			prepare(c.Commands)
			action := c.Action
			c.Action = func(ctx context.Context, c *cli.Command) error {
				began = true
				return action(ctx, c)
			}
		}
	}
	prepare(cmd.Commands)
	env.program = p
	err := cmd.Run(ctx, args)
	if failed := env.OutputError(); failed != nil {
		err, began = fmt.Errorf("the output could not be written: %w", failed), true
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrQuiet):
		return ExitFailed
	}
	wrongUsage := errors.Is(err, errUsage) || !began
	if env.json != nil && !wrongUsage { // who reads the log finds it there
		env.json.Error("the command has failed", "program", p.Name, "error", err)
	} else {
		fmt.Fprintln(stderr, p.Name+":", oneLineOf(err))
	}
	if wrongUsage {
		return ExitUsage
	}
	return ExitFailed
}

// OutputError returns why something that was said could not be written.
func (e *Environment) OutputError() error {
	if e.output == nil {
		return nil
	}
	return e.output.failed()
}

// wrap has what commands write go through human.Writer, so that no text of a stranger
// reaches a terminal as anything but text.
func (e *Environment) wrap() {
	e.output = &output{to: e.Stdout}
	e.Data = e.output
	e.Stdout = human.NewWriter(e.output)
	e.terminal = e.Stderr
	e.Stderr = human.NewWriter(e.Stderr)
}

// output remembers that what a command says could not be written.
type output struct {
	to io.Writer

	mu  sync.Mutex
	err error
}

func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.to.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err //nolint:wrapcheck // it is the output's
}

// flagError says what is wrong with a flag, and which one may be meant.
func flagError(_ context.Context, c *cli.Command, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return UsageError("%v", err)
	}
	name = strings.TrimLeft(name, "-")
	message := fmt.Sprintf("%s has no flag --%s", c.FullName(), name)
	if near := cli.SuggestFlag(c.Flags, name, false); near != "" && distance(near, "--"+name) < 4 {
		message += "; did you mean " + near + "?"
	}
	return UsageError("%s", message)
}

// ChooseCommand is what a command that only has others does by itself.
func ChooseCommand(_ context.Context, c *cli.Command) error {
	if !c.Args().Present() {
		if c.Root() == c {
			return cli.ShowRootCommandHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	given := c.Args().First()
	message := fmt.Sprintf("there is no command %q; see %s help", strings.TrimPrefix(c.FullName()+" ", c.Root().Name+" ")+given, c.FullName())
	if near := cli.SuggestCommand(c.Commands, given); near != "" && distance(near, given) < 3 {
		message += "; did you mean " + near + "?"
	}
	return UsageError("%s", message)
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
var inner = regexp.MustCompile(`(?m)(^|[ (:])(?:app|check|consumer|dict|export|fdbkv|fence|format|frames|graph|intern|kv|memkv|pebblekv|query|usage|wire): `)

// plain writes an error without the names of packages.
func plain(err error) string {
	s := err.Error()
	for {
		t := inner.ReplaceAllString(s, "$1")
		if t == s {
			return strings.ReplaceAll(s, context.Canceled.Error(), "interrupted")
		}
		s = t
	}
}

// oneLineOf writes an error in one line: several that were joined stand behind each other,
// and a stranger's text cannot begin a line of its own.
func oneLineOf(err error) string {
	return human.Line(strings.ReplaceAll(plain(err), "\n", "; "))
}

// ErrQuiet ends a command with exitFailed; what there was to say has been said.
var ErrQuiet = errors.New("failed")

// Environment is what commands write to. Run wraps Stdout and Stderr, for text; Data is the
// standard output for bytes that another program reads.
type Environment struct {
	program        Program
	Stdout, Stderr io.Writer
	Data           io.Writer
	output         *output   // the standard output, which remembers failures
	terminal       io.Writer // Stderr as it was: only progress bars and the status line move its cursor
	Level, Format  string    // of the log
	Stop           Stopping
	dying          sync.Once
	screen         *screen      // nil where there is none
	json           *slog.Logger // nil where nothing is logged as JSON
}

// fatal ends the process where the store can go on no longer: the engine waits for
// nothing but that. What was committed is kept.
func (e *Environment) fatal(err error) {
	e.dying.Do(func() {
		fmt.Fprintln(e.Stderr, e.program.Name+":", oneLineOf(err))
		os.Exit(ExitFailed)
	})
	select {} // another goroutine is ending the process
}

// Terminal reports whether somebody watches.
func (e *Environment) Terminal() bool {
	f, ok := e.terminal.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width is how many columns the terminal has.
func (e *Environment) width() int {
	if f, ok := e.terminal.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 0
}

// NoArguments refuses what stands behind the flags.
func NoArguments(c *cli.Command) error {
	if c.Args().Present() {
		return UsageError("%s takes no argument, got %q", c.Name, c.Args().First())
	}
	return nil
}
