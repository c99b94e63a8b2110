package command

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"skein.blue/internal/human"
)

// Progress shows the progress of a long task on a terminal: a bar, a rate and the time left if
// the total is known, else a count and a rate.
type Progress struct {
	bar *progressbar.ProgressBar // nil without a terminal
}

// Progress returns a Progress of things, such as "records". total is an estimate of their
// number, 0 if unknown.
func (e *Environment) Progress(things string, total int64) *Progress {
	if !e.Terminal() {
		return &Progress{}
	}
	if total <= 0 {
		total = -1
	}
	return &Progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(&oneLine{e.terminal, e.width}), progressbar.OptionSetWidth(min(30, max(e.width()-60, 10))), progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(things),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(total > 0), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())}
}

// Tell shows the current count.
func (p *Progress) Tell(n int64) {
	if p.bar == nil {
		return
	}
	if most := p.bar.GetMax64(); most > 0 && n >= most { // the total was an estimate
		p.bar.ChangeMax64(n + 1)
	}
	_ = p.bar.Set64(n) // fails only if the terminal is gone
}

// Of shows the current count, the total, and more text.
func (p *Progress) Of(n, total int64, more string) {
	if p.bar == nil {
		return
	}
	if total > 0 && total != p.bar.GetMax64() {
		p.bar.ChangeMax64(total)
	}
	p.bar.Describe(human.Line(more))
	p.Tell(n)
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}

// cut cuts a line to fit one line of a terminal with so many columns (0: unknown, no cut). A
// line that wrapped could not be cleared.
func cut(line string, columns int) string {
	if r := []rune(line); columns > 1 && len(r) >= columns {
		return string(r[:columns-1])
	}
	return line
}

// oneLine is a writer that cuts each line to the width of the terminal.
type oneLine struct {
	to    io.Writer
	width func() int
}

// Write implements io.Writer.
func (o *oneLine) Write(b []byte) (int, error) {
	width := o.width()
	lines := strings.Split(string(b), "\r")
	for i, l := range lines {
		lines[i] = cut(l, width)
	}
	if _, err := io.WriteString(o.to, strings.Join(lines, "\r")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Counting is a reader that counts the bytes it has read.
type Counting struct {
	io.Reader

	N int64
}

// Read implements io.Reader.
func (c *Counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.N += int64(n)
	return n, err
}

// screen is a terminal with a changing status line at the bottom and the log above it.
type screen struct {
	mu    sync.Mutex // guards the fields below
	to    io.Writer
	width func() int // of the terminal, 0 if unknown
	line  string
}

const clearLine = "\r\033[K"

// Write implements io.Writer: the status line moves down.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		_, _ = io.WriteString(s.to, clearLine)
	}
	n, err := s.to.Write(b)
	if s.line != "" {
		_, _ = io.WriteString(s.to, cut(s.line, s.width()))
	}
	return n, err
}

// status changes the status line; "" removes it.
func (s *screen) status(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line = human.Line(line); line == s.line {
		return
	}
	s.line = line
	_, _ = io.WriteString(s.to, clearLine+cut(line, s.width()))
}

// StatusLine returns a function that sets the status line below the log. It is nil unless the
// log is text on a terminal.
func (e *Environment) StatusLine() func(line string) {
	if e.screen == nil {
		return nil
	}
	return e.screen.status
}

// logger returns the program's logger: text for people, JSON for machines.
func (e *Environment) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.Level)); err != nil {
		return nil, UsageError("--log-level %q: use debug, info, warn or error", e.Level)
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(plain(v))
		case time.Duration: // JSON would show nanoseconds
			a.Value = slog.StringValue(v.String())
		}
		return a
	}}
	text := e.Terminal()
	switch e.Format {
	case "", "auto":
	case "text", "json":
		text = e.Format == "text"
	default:
		return nil, UsageError("--log-format %q: use auto, text or json", e.Format)
	}
	if !text {
		e.json = slog.New(slog.NewJSONHandler(e.Stderr, o))
		return e.json, nil
	}
	out := e.Stderr
	if e.Terminal() {
		e.screen = &screen{to: e.terminal, width: e.width}
		out = human.NewWriter(e.screen)
	}
	return slog.New(slog.NewTextHandler(out, o)), nil
}
