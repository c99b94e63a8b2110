package language

import "skein.blue/intern/dict"

// authored reads the arguments of authors(E) or by(E, S). Both lead from a record to the account that created it, whose DID its AT URI
// begins with. That edge is the record itself, so its time is the one in the record's own key.
func (p *parser) authored(n *Node, name string, depth int) error {
	const usage = "authors takes a set of records, by a set of records and one of accounts: authors(likes(A), since=7d), by(likes(A), follows(A))"
	of, more, err := p.operand(dict.URI, name, depth)
	if err != nil {
		return err
	}
	p.e.nameAuthors(&of)
	if n.Args, n.Is = []Node{of}, dict.DID; n.Op == OpAuthors {
		if more {
			n.Window, err = p.window(name, usage)
		}
		return err
	}
	if !more {
		return p.errorf(n.Offset, usage)
	}
	by, more, err := p.operand(dict.DID, name, depth)
	if n.Args, n.Is = append(n.Args, by), dict.URI; more {
		err = p.errorf(n.Offset, usage)
	}
	return err
}

// operand reads a set whose members are of a namespace, and what follows it.
func (p *parser) operand(ns dict.Namespace, name string, depth int) (n Node, more bool, err error) {
	if n, err = p.expr(depth + 1); err == nil {
		if err = p.e.mustBe(&n, ns, name+" takes a set of %s here"); err != nil {
			err = p.errorf(n.Offset, "%v", err)
		}
	}
	if err == nil {
		more, err = p.next(name)
	}
	return n, more, err
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
