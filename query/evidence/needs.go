package evidence

import (
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
)

// A Need is something that an expression depends on: records of a kind within a window, and whose they are.
type Need struct {
	Kind   kinds.Kind
	Window language.Window
	Joined bool // it also depends on the records themselves of the kind's collection, if that is a kind

	// One of these says whose.
	Own       *language.Node   // a forward set, or listed: those of the account, or of the list's author
	Everybody *language.Node   // all accounts' that name the subject of this reverse set, or anything if it is not one
	Members   []*language.Node // those of the accounts in all of these sets, or of the authors of the records in them
	Labels    *language.Node   // of the labeler, instead of records
}

// Of returns what a part of an expression depends on.
func Of(n *language.Node) []Need { return within(n, nil) }

// Sizes returns what the sizes of the sets depend on to which via leads from each member of a set.
func Sizes(of *language.Node, via language.Via) []Need {
	return Of(&language.Node{Op: language.OpRank, Kind: via.Kind, Is: via.Is, Args: []language.Node{*of}, Rank: &language.RankSpec{Via: via, Scored: true}})
}

// Known reports whether the members of a set depend on known accounts only, and not on everybody.
func Known(n *language.Node) bool { known, _ := reach(n); return known }

// reach reports whether n depends on no Everybody, and whether that is so once it is read within known sets.
func reach(n *language.Node) (known, within bool) {
	some, known, within := false, true, true
	for i := range n.Args {
		k, w := reach(&n.Args[i])
		some, known, within = some || k, known && k, within && w
	}
	switch n.Op {
	case language.OpReverse, language.OpLists:
		return n.Kind.IsLabel(), true
	case language.OpIntersect:
		return some && within, within
	case language.OpExcept, language.OpBy:
		first, _ := reach(&n.Args[0])
		return first && within, within
	case language.OpSample, language.OpAuthors:
		return known, known
	case language.OpRank:
		of, _ := reach(&n.Args[0])
		known = known && isForward(n.Rank) && !damps(n.Rank)
		return known, known || of && within && !n.Rank.Scored // else other results decide which are among the first
	default:
		return known, within
	}
}

// isForward reports whether a ranking reads no more than the records of the accounts in its set, or of the authors of the lists in it.
func isForward(r *language.RankSpec) bool {
	return r.Via.Op == language.OpForward || r.Via.Op == language.OpListed || r.Via.Op == language.OpAuthors
}

// damps reports whether scores matter that depend on the sizes of the results' own sets.
func damps(r *language.RankSpec) bool { return r.Scored && r.Damp > 0 }

// within returns what the members of n that are in all sets of among depend on. All of among are Known; if there are none, it
// returns what all members depend on.
func within(n *language.Node, among []*language.Node) (needs []Need) {
	switch n.Op {
	case language.OpForward, language.OpListed:
		return []Need{{Kind: n.Kind, Window: n.Window, Own: n}}
	case language.OpReverse:
		if n.Kind.IsLabel() {
			return []Need{{Kind: n.Kind, Window: n.Window, Labels: n}}
		}
		return []Need{reverse(n, among)}
	case language.OpLists:
		return []Need{reverse(n, among)}
	case language.OpIntersect:
		// A member is in all of the sets. So of a set that depends on everybody, it matters only whether it has the members
		// of those that do not.
		first := firsts(n.Args)
		whole, known := slices.Clone(among), slices.Clone(among)
		for i := range n.Args {
			arg := &n.Args[i]
			if first(arg) {
				whole = append(whole, arg)
			}
			if first(arg) || Known(arg) {
				known = append(known, arg)
			}
		}
		for i := range n.Args {
			switch arg := &n.Args[i]; { // none within itself: it may lack members
			case first(arg):
				needs = append(needs, Of(arg)...)
			case Known(arg):
				needs = append(needs, within(arg, whole)...)
			default:
				needs = append(needs, within(arg, known)...)
			}
		}
	case language.OpExcept, language.OpBy:
		// Of what is left out, it matters only whether it has members of the first set; of accounts, whether it has their authors.
		needs = within(&n.Args[0], among)
		among = slices.Clone(among)
		if Known(&n.Args[0]) {
			among = append(among, &n.Args[0])
		}
		for i := 0; n.Op == language.OpBy && i < len(among); i++ {
			among[i] = &language.Node{Op: language.OpAuthors, Is: dict.DID, Args: []language.Node{*among[i]}}
		}
		for i := range n.Args[1:] {
			needs = append(needs, within(&n.Args[1+i], among)...)
		}
	case language.OpUnion, language.OpAtLeast, language.OpBlend:
		if n.Rank != nil && n.Rank.Scored {
			among = nil
		}
		for i := range n.Args {
			needs = append(needs, within(&n.Args[i], among)...)
		}
	case language.OpSample, language.OpAuthors: // which members it has depends on all of them
		return Of(&n.Args[0])
	case language.OpRank:
		return ranking(n, among)
	default: // members(…)
	}
	return needs
}

// firsts returns which operands of an intersection are read whole, and the others within them: those that are plain; if there are
// none, those that are Known.
func firsts(operands []language.Node) func(*language.Node) bool {
	for i := range operands {
		if plain(&operands[i]) {
			return plain
		}
	}
	return Known
}

// plain reports whether a set has no reverse sets, which are better read within others.
func plain(n *language.Node) bool {
	for i := range n.Args {
		if !plain(&n.Args[i]) {
			return false
		}
	}
	switch n.Op {
	case language.OpReverse:
		return n.Kind.IsLabel()
	case language.OpLists:
		return false
	case language.OpRank:
		return isForward(n.Rank) && !damps(n.Rank)
	default:
		return true
	}
}

// reverse returns what a reverse set depends on, or a ranking along one.
func reverse(n *language.Node, among []*language.Node) Need {
	need := Need{Kind: n.Kind, Window: n.Window, Members: among, Joined: n.Op == language.OpLists || n.Op == language.OpRank && n.Rank.Via.Op == language.OpLists}
	if len(among) == 0 {
		need.Everybody = n
	}
	return need
}

// ranking is within of a ranking.
func ranking(n *language.Node, among []*language.Node) (needs []Need) {
	of := &n.Args[0]
	if n.Rank.Scored {
		among = nil
	}
	needs = Of(of)
	switch {
	case n.Rank.Via.Op == language.OpAuthors: // the records name them
	case isForward(n.Rank) && Known(of):
		needs = append(needs, Need{Kind: n.Kind, Window: n.Window, Members: []*language.Node{of}})
	case isForward(n.Rank):
		needs = append(needs, Need{Kind: n.Kind, Window: n.Window, Everybody: n})
	default: // the results' own records lead to members of the set
		needs = append(needs, reverse(n, among))
	}
	if damps(n.Rank) { // by the size of the results' sets, of all times
		needs = append(needs, Need{Kind: n.Kind, Everybody: n})
	}
	if len(n.Args) > 1 {
		needs = append(needs, within(&n.Args[1], among)...)
	}
	return needs
}
