package language

import (
	"cmp"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// This file has what leads from records to the accounts that created them, whose DIDs their AT URIs begin with: authors(E), by(E, S) and
// via=authors. The edge from a record to its author is the record itself, so its time is the one in the record's own key.

// Authors is the set of the account that created a record.
var Authors = Via{Name: "authors", Op: OpAuthors, Form: kinds.ATURI, From: dict.URI, Is: dict.DID}

// authored reads the arguments of authors(E) or by(E, S).
func (p *parser) authored(n *Node, name string, depth int) error {
	usage := "authors takes a set of records, optionally followed by since=TIME and until=TIME, the times of the records themselves"
	if n.Op == OpBy {
		usage = "by takes a set of records and a set of accounts: by(likes(A), follows(A))"
	}
	of, err := p.operand(dict.URI, name, depth)
	if err != nil {
		return err
	}
	p.e.nameAuthors(&of)
	n.Args, n.Is = []Node{of}, dict.URI
	more, err := p.next(name)
	if n.Op == OpBy {
		if err != nil || !more {
			return cmp.Or(err, p.errorf(n.Offset, "%s", usage))
		}
		by, err := p.operand(dict.DID, name, depth)
		if err != nil {
			return err
		}
		n.Args = append(n.Args, by)
		if more, err = p.next(name); more {
			err = p.errorf(n.Offset, "%s", usage)
		}
		return err
	}
	n.Is = dict.DID
	if err != nil || !more {
		return err
	}
	var t times
	at := p.i
	if err = p.options(name, usage, func(option string) (bool, error) { return t.option(p, option) }); err == nil {
		n.Window, err = t.window(p, at)
	}
	return err
}

// operand reads a set whose members are of a namespace.
func (p *parser) operand(ns dict.Namespace, name string, depth int) (Node, error) {
	n, err := p.expr(depth + 1)
	if err == nil {
		if err = p.e.mustBe(&n, ns, name+" takes a set of %s here"); err != nil {
			err = p.errorf(n.Offset, "%v", err)
		}
	}
	return n, err
}

// nameAuthors adds the authors of what members(…) names in n to the expression's strings: the index may know neither.
func (e *Expr) nameAuthors(n *Node) {
	for m := range n.All() {
		if m.Op != OpMembers || m.Is != dict.URI || m.By > 0 {
			continue
		}
		m.By = len(e.Strings)
		for i := m.First; i < m.End; i++ {
			e.Strings, e.Offsets = append(e.Strings, e.Strings[i].author()), append(e.Offsets, e.Offsets[i])
		}
	}
}
