package query

import (
	"fmt"
	"strings"
	"time"
)

// question is what a cursor of an expression is bound to: what it says, and the accounts
// whose handles it names.
func (e *Expr) question() string {
	parts := []string{e.source}
	for _, l := range e.strings {
		parts = append(parts, l.s)
	}
	return strings.Join(parts, "\x00")
}

// canonical is the expression without what does not matter: it is the same for all that say
// the same in the same order.
func (e *Expr) canonical() string {
	var b strings.Builder
	var write func(n *node)
	write = func(n *node) {
		fmt.Fprintf(&b, "%d.%d.%d.%d(", n.op, n.kind, n.window.From, n.window.To)
		switch n.op {
		case opForward, opReverse, opListed, opLists:
			b.WriteString(e.strings[n.of].s)
		case opMembers:
			for _, l := range e.strings[n.first:n.last] {
				b.WriteString(l.s + ",")
			}
		default:
			for i := range n.args {
				write(&n.args[i])
			}
		}
		b.WriteString(")")
	}
	write(&e.root)
	return b.String()
}

// asOf returns the expression with its ages counted from another time.
func (e *Expr) asOf(now time.Time) (*Expr, error) {
	again, err := e.words.parse(e.source, len(e.source), now)
	if err == nil {
		again.strings = e.strings
	}
	return again, err
}
