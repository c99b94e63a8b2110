package language

import (
	"cmp"
	"fmt"
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// This file has the sets of accounts or records that a labeler has labeled: labeled(LABELER, VALUE). Its members are accounts
// or records, whichever the other sets of the expression have. They are evaluated like the actors of an
// edge (OpReverse).

// labeled reads the arguments of labeled(…).
func (p *parser) labeled(n *Node) error {
	const usage = "labeled takes a labeler and a value: labeled(did:plc:…, spam), optionally followed by on=accounts or on=records, since=TIME and until=TIME"
	start := n.Offset
	n.Op, n.Kind, n.Is, n.eitherIs = OpReverse, kinds.LabeledAccount, dict.DID, true
	n.First, n.Of = len(p.e.Strings), len(p.e.Strings)
	p.space()
	at := p.i
	word, _, err := p.argument()
	if err != nil {
		return err
	}
	l, ok := LiteralOf(word)
	if !ok || l.Is != dict.DID || l.Handle == ViewerName {
		return p.errorf(at, "the labeler %q is neither a DID nor a handle; %s", Brief(word), usage)
	}
	if why := l.Unusable(); why != "" {
		return p.errorf(at, "the labeler %q: %s", Brief(word), why)
	}
	more, err := p.next(kinds.Labeled)
	if err != nil || !more {
		return cmp.Or(err, p.errorf(start, usage))
	}
	p.space()
	valueAt := p.i
	value, _, err := p.argument()
	if err != nil {
		return err
	}
	if !kinds.ValidLabel(value) {
		return p.errorf(valueAt, "the value %q of labeled is not a string of 1 to %d bytes; put it in double quotes if it has spaces, commas, parentheses or double quotes", Brief(value), kinds.MaxLabel)
	}
	set := Literal{S: l.S, Is: dict.URI, Handle: l.Handle, Label: value}
	if l.Handle == "" {
		set.S = kinds.LabelSet(l.S, value)
	}
	p.e.Strings, p.e.Offsets = append(p.e.Strings, set), append(p.e.Offsets, at)
	n.End = len(p.e.Strings)
	if more, err = p.next(kinds.Labeled); err != nil || !more {
		return err
	}
	var t times
	optionsAt := p.i
	err = p.options(kinds.Labeled, usage, func(name string) (bool, error) {
		if name != "on" {
			return t.option(p, name)
		}
		what, err := p.value(name)
		if err != nil {
			return true, err
		}
		n.eitherIs = false
		switch what {
		case "accounts":
			p.e.become(n, dict.DID)
		case "records":
			p.e.become(n, dict.URI)
		default:
			return true, p.errorf(start, "unknown value %q of on; use accounts or records", Brief(what))
		}
		return true, nil
	})
	if err == nil {
		n.Window, err = t.window(p, optionsAt)
	}
	return err
}

// canBecome reports whether the members of n can be of a namespace: they are, or all of n's sets do not say
// which (eitherIs).
func (n *Node) canBecome(ns dict.Namespace) bool {
	switch {
	case n.Is == ns, n.eitherIs:
		return true
	case n.Op.IsSet(), n.Op == OpMembers, n.Rank != nil, n.Op == OpAuthors, n.Op == OpBy, len(n.Args) == 0:
		return false
	}
	for i := range n.Args {
		if !n.Args[i].canBecome(ns) {
			return false
		}
	}
	return true
}

// become makes the members of n those of a namespace. n must be able to (canBecome).
func (e *Expr) become(n *Node, ns dict.Namespace) {
	if n.Is == ns {
		return
	}
	n.Is = ns
	if n.Op == OpMembers {
		for i := n.First; i < n.End; i++ {
			e.Strings[i].Is = ns
		}
	}
	if n.Kind.IsLabel() {
		if n.Kind = kinds.LabeledAccount; ns == dict.URI {
			n.Kind = kinds.LabeledRecord
		}
	}
	for i := range n.Args {
		e.become(&n.Args[i], ns)
	}
}

// LabelerOf returns the DID of the labeler of a leaf that is labeled(…).
func (e *Expr) LabelerOf(n *Node) string {
	labeler, _, _ := strings.Cut(e.Strings[n.Of].S, " ")
	return labeler
}

// mustBe makes the members of n those of a namespace. must says with %s that they must be, for the client.
func (e *Expr) mustBe(n *Node, ns dict.Namespace, must string) error {
	switch {
	case n.canBecome(ns):
		e.become(n, ns)
		return nil
	case n.isList:
		return errNotItsMembers
	}
	return fmt.Errorf(must+"; this one is a set of %s", Plural(ns), Plural(n.Is))
}
