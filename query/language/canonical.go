package language

import (
	"fmt"
	"strings"
	"time"
)

// Question returns the text that a cursor is bound to: the expression's source and its
// resolved strings. A handle that moves to another account invalidates the cursor.
func (e *Expr) Question() string {
	parts := []string{e.Source}
	for _, l := range e.Strings {
		parts = append(parts, l.S)
	}
	return strings.Join(parts, "\x00")
}

// Canonical returns the expression's normal form: expressions that differ only in spaces or
// in how they spell an account or a time have the same one.
func (e *Expr) Canonical() string {
	var b strings.Builder
	var write func(n *Node)
	write = func(n *Node) {
		fmt.Fprintf(&b, "%d.%d.%d.%d.%d.%d(", n.Op, n.Kind, n.Window.From, n.Window.To, n.Least, n.Seed)
		switch n.Op {
		case OpForward, OpReverse, OpListed, OpLists:
			s := e.Strings[n.Of].S
			fmt.Fprintf(&b, "%d:%s", len(s), s) // it may have any characters
		case OpMembers:
			for _, l := range e.Strings[n.First:n.End] {
				fmt.Fprintf(&b, "%d:%d:%s", l.Is, len(l.S), l.S)
			}
		default:
			if n.Rank != nil {
				fmt.Fprintf(&b, "%s,%d,%d,%v,%v,", n.Rank.Via.Name, n.Rank.Min, n.Rank.Top, n.Rank.Weighing, n.Rank.Exact)
			}
			for i := range n.Args {
				write(&n.Args[i])
			}
		}
		b.WriteString(")")
	}
	write(&e.Root)
	return b.String()
}

// AsOf returns the expression with its ages counted back from now.
func (e *Expr) AsOf(now time.Time) (*Expr, error) {
	again, err := e.words.Parse(e.Source, len(e.Source), now)
	if err == nil {
		again.Strings = e.Strings
	}
	return again, err
}
