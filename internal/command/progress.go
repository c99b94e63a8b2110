package command

import "fmt"

// Progress shows a number that grows, on a terminal.
type Progress struct {
	e      *Environment
	format string
	told   bool
}

// Progress returns a Progress that is shown in a format.
func (e *Environment) Progress(format string) *Progress { return &Progress{e: e, format: format} }

// Tell shows how far something came.
func (p *Progress) Tell(n int64) {
	if p.e.Terminal() {
		p.told = true
		fmt.Fprintf(p.e.Stderr, "\r\033[K"+p.format, n)
	}
}

// End takes the number away.
func (p *Progress) End() {
	if p.told {
		fmt.Fprint(p.e.Stderr, "\r\033[K")
	}
}
