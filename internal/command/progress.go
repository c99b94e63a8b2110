package command

import "fmt"

// progress shows a number that grows, on a terminal.
type progress struct {
	e      *Environment
	format string
	told   bool
}

func (e *Environment) Progress(format string) *progress { return &progress{e: e, format: format} }

func (p *progress) Tell(n int64) {
	if p.e.Terminal() {
		p.told = true
		fmt.Fprintf(p.e.Stderr, "\r\033[K"+p.format, n)
	}
}

func (p *progress) End() {
	if p.told {
		fmt.Fprint(p.e.Stderr, "\r\033[K")
	}
}
