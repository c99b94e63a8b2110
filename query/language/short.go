package language

import "strings"

// shortNames are abbreviations, each for an expression about one account A.
var shortNames = map[string]string{
	"mutuals":   "intersect(follows(A),followers(A))",
	"blocking":  "union(blocks(A),rank(of=listblocks(A),via=listed))",    // directly, or through a list that A blocks
	"blockedBy": "union(blockers(A),rank(of=lists(A),via=listblockers))", // directly, or by blocking a list that A is on

	// within(A, 2): the accounts to which a chain of one or two follows leads; within(A, 1) is follows(A)
	within: "except(union(follows(A),rank(of=follows(A),via=follows,exact=true)),members(A))",
}

// within is the short name that takes a number, too: of steps, at most maxWithin.
const within, maxWithin = "within", 2

// short parses the argument of a short name, and expands it into n.
func (p *parser) short(n *Node, name string) error {
	start := n.Offset
	var a Node
	if err := p.literals(&a, name, p.e.words.functions["follows"]); err != nil { // any set that takes an account will do
		return err
	}
	if !a.Window.All() {
		return p.errorf(start, "%s takes no since or until, because it combines several kinds of records", name)
	}
	text := shortNames[name]
	if name == within && a.Least == 0 {
		return p.errorf(start, "within takes an account and the most steps, 1 or 2: within(A, 2)")
	}
	if a.Least == 1 {
		text = "follows(A)"
	}
	long, err := p.e.words.Parse(strings.ReplaceAll(text, "A", placeholder), MaxExpr, p.e.Now)
	if err != nil {
		return err
	}
	for part := range long.Root.All() {
		part.Offset = start
		if part.Op == OpRank {
			p.ranks++
		}
		if part.Op.IsSet() || part.Op == OpMembers {
			part.Of, part.First, part.End = part.Of+a.First, part.First+a.First, part.End+a.First
			p.leaves++
		}
	}
	if p.leaves > MaxLeaves || p.ranks > maxRanks {
		return p.errorf(start, "the expression has more than %d sets, or more than %d rankings: each of blocking, blockedBy and within contains one", MaxLeaves, maxRanks)
	}
	for range len(long.Strings) - 1 { // all of them are the account
		p.e.Strings, p.e.Offsets = append(p.e.Strings, p.e.Strings[a.First]), append(p.e.Offsets, p.e.Offsets[a.First])
	}
	*n = long.Root
	return nil
}
