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

	"skein.blue/internal/app"
	"skein.blue/internal/say"
)

// Exit codes.
const (
	ExitFailed = 1  // the command failed, or found a difference
	ExitUsage  = 64 // the command line is wrong (sysexits.h). The Go runtime exits with 2 on a crash
)

// UsageError returns an error in the command line.
func UsageError(format string, args ...any) error {
	return app.UsageError(format, args...)
}

// A Program is what Main runs.
type Program struct {
	Name     string
	Usage    string
	Commands func(*Environment) []*cli.Command
}

// Main runs the process's command line until it ends or a signal ends it, and returns the
// exit code.
func Main(p Program) int {
	env := &Environment{Stdout: os.Stdout, Stderr: os.Stderr}
	return Run(env.Stop.Listen(os.Stderr), env, p, os.Args)
}

// Run runs a command line and returns the exit code.
func Run(ctx context.Context, env *Environment, p Program, args []string) int {
	env.wrap()
	cmd := &cli.Command{
		Name:           p.Name,
		Version:        Version(),
		Usage:          p.Usage,
		Commands:       p.Commands(env),
		Writer:         env.Stdout,
		ErrWriter:      env.Stderr,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   flagError,
		Action:         chooseCommand,

		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			c.Usage = "print a completion script for bash, zsh, fish or pwsh"
		},
	}
	began := false // an error before a command begins is wrong usage: the flags or their variables
	for _, c := range cmd.Commands {
		c.OnUsageError = flagError
		action := c.Action
		c.Action = func(ctx context.Context, c *cli.Command) error {
			began = true
			if c.ArgsUsage == "" && c.Args().Present() {
				return UsageError("%s takes no arguments, got %q", c.Name, c.Args().First())
			}
			return action(ctx, c)
		}
	}
	env.program = p
	err := cmd.Run(ctx, args)
	if failed := env.OutputError(); failed != nil {
		err, began = fmt.Errorf("cannot write the output: %w", failed), true
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrQuiet):
		return ExitFailed
	}
	wrongUsage := errors.Is(err, app.ErrUsage) || !began
	if env.report(err, wrongUsage); wrongUsage {
		return ExitUsage
	}
	return ExitFailed
}

// report writes the error that ends the process.
func (e *Environment) report(err error, wrongUsage bool) {
	if e.json != nil && !wrongUsage { // readers of the log expect the error there
		e.json.Error(oneLineOf(err), "program", e.program.Name, "error", err) //nolint:sloglint // the message is the cause
	} else {
		fmt.Fprintln(e.Stderr, e.program.Name+":", oneLineOf(err))
	}
}

// OutputError returns the first error of writing to the standard output.
func (e *Environment) OutputError() error {
	e.output.mu.Lock()
	defer e.output.mu.Unlock()
	return e.output.err
}

// wrap sends the commands' output through say.Writer, so that a stranger's text cannot
// control a terminal.
func (e *Environment) wrap() {
	e.output = &output{to: e.Stdout}
	e.OnTerminal = isTerminal(e.Stdout)
	e.Data = e.output
	e.Stdout = say.NewWriter(e.output)
	if e.OnTerminal {
		e.Data = e.Stdout
	}
	e.terminal = e.Stderr
	e.Stderr = say.NewWriter(e.Stderr)
}

// output remembers the first error of writing to it.
type output struct {
	to io.Writer

	mu  sync.Mutex // guards the fields below
	err error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.to.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// flagError rewords the library's error about a flag, and suggests a similar flag.
func flagError(_ context.Context, c *cli.Command, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		if wrong := wrongValue.FindStringSubmatch(err.Error()); wrong != nil {
			return UsageError("--%s %s: %s", wrong[2], wrong[1], wrong[3])
		}
		return UsageError("%v", err)
	}
	name = strings.TrimLeft(name, "-")
	dashes := "--"
	if len(name) == 1 {
		dashes = "-"
	}
	message := fmt.Sprintf("%s has no flag %s%s", c.FullName(), dashes, name)
	if near := cli.SuggestFlag(c.Flags, name, false); near != "" && distance(near, "--"+name) < 4 {
		message += "; did you mean " + near + "?"
	}
	return UsageError("%s", message)
}

// wrongValue matches the library's error about a flag's value: the value, the flag, and the error of the flag's parser.
var wrongValue = regexp.MustCompile(`(?s)^invalid value (".*") for flag -([a-z-]+): (.*)$`)

// chooseCommand is the action without a command: it prints help, or reports an unknown command.
func chooseCommand(_ context.Context, c *cli.Command) error {
	if !c.Args().Present() {
		return cli.ShowRootCommandHelp(c)
	}
	name := c.Args().First()
	hint := "see " + c.FullName() + " help"
	if near := cli.SuggestCommand(c.Commands, name); near != "" && distance(near, name) < 3 {
		hint = "did you mean " + near + "? Otherwise " + hint
	}
	return UsageError("unknown command %q; %s", name, hint)
}

// distance returns roughly how many letters two words differ in.
func distance(a, b string) int {
	d := max(len(a), len(b)) - min(len(a), len(b))
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && (i == 0 || i >= len(b) || a[i] != b[i-1]) && (i+1 >= len(b) || a[i] != b[i+1]) {
			d++
		}
	}
	return d
}

// inner matches the package names that errors begin with. They tell a user nothing. Elsewhere in a sentence, the
// same words tell something.
var inner = regexp.MustCompile(`(?m)(^|[:;,] |\()(?:app|check|consumer|dict|export|fdbkv|fence|format|frames|graph|intern|kv|memkv|pebblekv|query|usage|wire): `)

// plain returns an error's text without package names.
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

// oneLineOf returns an error's text on one line. Joined errors are separated by semicolons, and
// a stranger's text in an error cannot begin a line of its own.
func oneLineOf(err error) string {
	return say.Line(strings.ReplaceAll(plain(err), "\n", "; "))
}

// ErrQuiet ends a command with ExitFailed and prints nothing: the command already did.
var ErrQuiet = errors.New("failed")

// Environment holds what commands write to. Run wraps Stdout and Stderr, for text; Data is the
// standard output for bytes that another program reads, and Stdout if it is a terminal.
type Environment struct {
	program        Program
	Stdout, Stderr io.Writer
	Data           io.Writer
	output         *output   // the standard output; remembers its first error
	OnTerminal     bool      // the standard output
	terminal       io.Writer // Stderr unwrapped: progress bars move its cursor
	Level, Format  string    // of the log
	Stop           Stopping
	dying          sync.Once
	json           *slog.Logger // nil unless the log is JSON
}

// fatal ends the process when the store cannot go on. The engine is blocked until it does.
// Committed data is safe.
func (e *Environment) fatal(err error) {
	e.dying.Do(func() {
		e.report(err, false)
		os.Exit(ExitFailed)
	})
	select {} // another goroutine is ending the process
}

// Terminal reports whether the standard error is a terminal.
func (e *Environment) Terminal() bool { return isTerminal(e.terminal) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width returns the terminal's number of columns, 0 if unknown.
func (e *Environment) width() int {
	if f, ok := e.terminal.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 0
}
