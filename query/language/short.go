package language

import (
	"maps"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// shortNames are abbreviations, each for an expression about one account.
var shortNames = map[string]func(p *parser, a Node) (Node, error){
	"mutuals": func(_ *parser, a Node) (Node, error) {
		return operator(OpIntersect, leaf(a, OpForward, "follow"), leaf(a, OpReverse, "follow")), nil
	},
	// Either directly, or through a list that the account blocks.
	"blocking": func(p *parser, a Node) (Node, error) {
		through, err := p.rankVia(leaf(a, OpForward, "listblock"), "listed")
		return operator(OpUnion, leaf(a, OpForward, "block"), through), err
	},
	// Either directly, or by blocking a list that the account is on.
	"blockedBy": func(p *parser, a Node) (Node, error) {
		lists := Node{Op: OpLists, Kind: kinds.ListItem, Of: a.Of, First: a.First, End: a.End, Is: dict.URI, Offset: a.Offset}
		through, err := p.rankVia(lists, "listblockers")
		return operator(OpUnion, leaf(a, OpReverse, "block"), through), err
	},
}

// ShortNames returns the abbreviations for expressions about one account, in order.
func ShortNames() []string { return slices.Sorted(maps.Keys(shortNames)) }

// short parses the argument of a short name, and expands it into n.
func (p *parser) short(n *Node, name string) error {
	start := n.Offset
	a := leaf(*n, OpForward, "follow") // any leaf that takes an account will do
	if p.leaves += 2; p.leaves > MaxLeaves {
		return p.errorf(start, "the expression has more than %d sets", MaxLeaves)
	}
	if err := p.literals(&a, name); err != nil {
		return err
	}
	if !a.Window.All() {
		return p.errorf(start, "%s takes no since or until, because it combines several kinds of records", name)
	}
	var err error
	*n, err = shortNames[name](p, a)
	return err
}

// leaf returns the leaf of a built-in kind with a's argument.
func leaf(a Node, op Op, kind string) Node {
	for i := range kinds.All {
		if k := &kinds.All[i]; k.Name == kind {
			a.Op, a.Kind, a.Is = op, k.Kind, dict.DID
			if op == OpForward {
				a.Is = k.To.Is()
			}
		}
	}
	return a
}

func operator(op Op, args ...Node) Node {
	return Node{Op: op, Args: args, Is: args[0].Is, Offset: args[0].Offset}
}

// rankVia returns rank(of=…, via=name) without a limit.
func (p *parser) rankVia(of Node, name string) (Node, error) {
	if p.ranks++; p.ranks > maxRanks {
		return of, p.errorf(of.Offset, "more than %d rankings in one expression: each of blocking and blockedBy contains one", maxRanks)
	}
	via, err := p.e.words.NamedFrom("via", name, of.Is)
	return Node{Op: OpRank, Kind: via.Kind, Args: []Node{of}, Rank: &RankSpec{Via: via, Min: 1}, Is: via.Is, Offset: of.Offset}, err
}
