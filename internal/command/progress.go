package command

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"skein.blue/internal/say"
)

// Progress shows the progress of a long task on a terminal: a count and a rate, and if the total
// is known, a bar and the time left.
type Progress struct {
	to     io.Writer // nil without a terminal
	width  func() int
	things string
	began  time.Time

	mu    sync.Mutex // guards drawn
	drawn time.Time
}

// Progress returns a Progress of things, such as "records".
func (e *Environment) Progress(things string) *Progress {
	p := &Progress{width: e.width, things: things, began: time.Now()}
	if e.Terminal() {
		p.to = e.terminal
	}
	return p
}

// Tell shows the current count.
func (p *Progress) Tell(n int64) { p.Of(n, 0, "") }

// Of shows the current count, an estimate of the total, 0 if unknown, and more text.
func (p *Progress) Of(n, total int64, more string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.to == nil || time.Since(p.drawn) < 100*time.Millisecond {
		return
	}
	p.drawn = time.Now()
	if more != "" {
		more = say.Line(more) + " "
	}
	_, _ = io.WriteString(p.to, clearLine+cut(more+p.line(n, total, p.drawn.Sub(p.began)), p.width())) // fails only if the terminal is gone
}

// line returns what is shown of n things after a time. A total that is reached was an estimate.
func (p *Progress) line(n, total int64, took time.Duration) string {
	count, things := say.Count[int64], p.things
	if things == "bytes" {
		count, things = say.Bytes[int64], ""
	}
	rate := float64(n) / max(took.Seconds(), 0.001)
	line := fmt.Sprintf("%s, %s/s, %v", strings.TrimSpace(count(n)+" "+things), count(int64(rate)), took.Round(time.Second))
	if total > n && n > 0 {
		const columns = 25
		left := time.Duration(float64(total-n) / rate * float64(time.Second))
		line = fmt.Sprintf("%3d %% [%-*s] %s, %v left", n*100/total, columns, strings.Repeat("=", int(n*columns/total)), line, left.Round(time.Second))
	}
	return line
}

// End removes the line.
func (p *Progress) End() {
	if p.to != nil {
		_, _ = io.WriteString(p.to, clearLine)
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

const clearLine = "\r\033[K"
