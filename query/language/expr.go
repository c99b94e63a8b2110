package language

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Bounds of an expression.
const (
	MaxExpr   = 16 << 10 // bytes in a URL
	MaxForm   = 1 << 20  // bytes in a form
	MaxLeaves = 64
	MaxDepth  = 32
	MaxGiven  = 20_000 // arguments of members(…), over the whole expression
)

// A Node is a set expression or a part of one: an operator with operands, or a leaf.
type Node struct {
	Op     Op
	Kind   kinds.Kind // leaf or OpRank: the kind of edge
	Of     int        // leaf: index of its argument in Expr.Strings
	By     int        // OpListed: index of the list's author in Expr.Strings; OpMembers: of the first of the members' authors, 0 if they do not matter
	Window Window     // leaf, OpRank or OpAuthors: its times, since and until
	Args   []Node     // operator: its operands; OpRank: the set given as of=, OpBlend: its rankings, then the one given as except=, if any
	Rank   *RankSpec  // OpRank, OpBlend: its other arguments
	Least  int        // OpAtLeast: how many of the operands; OpSample: how many members
	Seed   uint64     // OpSample: which sample
	First  int        // leaf: its strings are Expr.Strings[First:End]
	End    int
	Is     dict.Namespace // the namespace of the members
	Offset int            // in Expr.Source, in bytes

	isList   bool // members(…) of one list, not of the accounts on it
	eitherIs bool // members are what the sets around have: accounts or records of a labeled(…), accounts or texts of a members(…) of quoted DIDs
}

// All yields the node and all parts of it.
func (n *Node) All() iter.Seq[*Node] {
	return func(yield func(*Node) bool) { n.each(yield) }
}

func (n *Node) each(yield func(*Node) bool) bool {
	if !yield(n) {
		return false
	}
	for i := range n.Args {
		if !n.Args[i].each(yield) {
			return false
		}
	}
	return true
}

// Named yields the indices, in Expr.Strings, of what members(…) names in n, and of the authors that it thereby names.
func (n *Node) Named() iter.Seq[int] {
	return func(yield func(int) bool) {
		for m := range n.All() {
			for i := m.First; m.Op == OpMembers && i < m.End; i++ {
				if !yield(i) || m.By > 0 && !yield(m.By+i-m.First) {
					return
				}
			}
		}
	}
}

// An Op is an operator, or the type of a leaf.
type Op uint8

// Leaves come first, then members(…), then the operators.
const (
	OpForward   Op = iota // the subjects of an actor: follows, likes, …
	OpReverse             // the actors of a subject: followers, likers, …
	OpListed              // the accounts on a list
	OpLists               // the lists that an account is on, or the records that name a subject (kinds.Info.Records)
	OpMembers             // the accounts or URIs written in the expression
	OpIntersect           // members of all operands
	OpUnion               // members of any operand
	OpExcept              // members of the first operand and of no other
	OpAtLeast             // members of at least Node.Least operands
	OpRank                // the results of rank(…)
	OpBlend               // the results of blend(…)
	OpSample              // Node.Least members of the operand
	OpAuthors             // the accounts that created the records of the operand
	OpBy                  // the records of the first operand whose authors are in the second
	opShort               // a short name; it never occurs in a Node of a parsed expression
	opLabeled             // labeled(…), likewise: its Node has OpReverse
)

// IsSet reports whether o reads one stored set: followers, likes, listed, …
func (o Op) IsSet() bool { return o <= OpLists }

// An Expr is a parsed set expression.
type Expr struct {
	words   *Vocabulary
	Source  string
	Root    Node
	Strings []Literal
	Offsets []int     // of Strings, in Source, in bytes
	Now     time.Time // the time that ages (7d, 24h) are counted back from
	HasAge  bool      // a window contains an age, so the result depends on Now
}

// A Literal is a DID, an AT URI or another string in an expression.
type Literal struct {
	S      string
	Is     dict.Namespace
	Handle string // the account's handle until Resolve replaces it; "" if the account is given as a DID; may be ViewerName
	Label  string // the value, if S names a set of labels (kinds.LabelSet)
}

// author returns the account in the URI's authority.
func (l Literal) author() Literal {
	if l.Handle != "" {
		return Literal{S: "@" + l.Handle, Is: dict.DID, Handle: l.Handle}
	}
	return Literal{S: dict.AuthorityOf(l.S), Is: dict.DID}
}

// Info returns the table row of a leaf's kind.
func (e *Expr) Info(n *Node) *kinds.Info { return e.words.Table.Info(n.Kind) }

// Type returns the namespace of the members: DIDs or AT URIs.
func (e *Expr) Type() dict.Namespace { return e.Root.Is }

// Forms returns what the members may be, all of one namespace.
func (e *Expr) Forms() []kinds.Form { return e.forms(&e.Root) }

func (e *Expr) forms(n *Node) (forms []kinds.Form) {
	switch {
	case n.Is == dict.DID:
		return []kinds.Form{kinds.DID}
	case n.Op == OpBy:
		return []kinds.Form{kinds.ATURI}
	case n.Op == OpForward, n.Op == OpRank && n.Rank.Via.Op == OpForward:
		return []kinds.Form{e.Info(n).To.Form}
	case n.Op.IsSet(), n.Op == OpRank:
		return []kinds.Form{kinds.ATURI}
	case n.Op == OpMembers:
		for _, l := range e.Strings[n.First:n.End] {
			if l.Handle == "" && !dict.ValidURI(l.S) {
				return []kinds.Form{kinds.Link, kinds.Text}
			}
		}
		return []kinds.Form{kinds.ATURI}
	}
	for i := range n.Args {
		forms = append(forms, e.forms(&n.Args[i])...)
	}
	return forms
}

// Unusable returns why the index can never contain a syntactically valid literal, "" if it can.
func (l Literal) Unusable() string {
	if l.Handle != "" {
		return ""
	}
	if id, ok := strings.CutPrefix(dict.AuthorityOf(l.S), "did:plc:"); ok && !dict.ValidPLC(id) {
		return "a did:plc has 24 characters after did:plc:, each a to z or 2 to 7"
	}
	return ""
}

// A SyntaxError says what is wrong with an expression, and where.
type SyntaxError struct {
	Offset int // in bytes
	What   string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("at position %d: %s", e.Offset, e.What) }

// Source returns the part of n whose records make the members of n members: n itself, or the first set of
// intersect, except, sample and by. It is a leaf, or a union or an atleast of parts that have a Source, too. Source returns nil if the members of a
// part come from no records, as those of members and rank do.
func (n *Node) Source() *Node {
	for n.Op == OpIntersect || n.Op == OpExcept || n.Op == OpSample || n.Op == OpBy {
		n = &n.Args[0]
	}
	if n.Op.IsSet() {
		return n
	}
	if n.Op != OpUnion && n.Op != OpAtLeast {
		return nil
	}
	for i := range n.Args {
		if n.Args[i].Source() == nil {
			return nil
		}
	}
	return n
}

// IsLeaf reports whether the expression is one stored set without an operator.
func (e *Expr) IsLeaf() bool { return e.Root.Op.IsSet() }

// AuthorOf returns the DID of the account whose record makes member a member of the leaf n.
func (e *Expr) AuthorOf(n *Node, member string) string {
	switch n.Op {
	case OpForward:
		return e.Strings[n.Of].S
	case OpReverse:
		return member
	case OpListed:
		return e.Strings[n.By].S
	default: // OpLists
		return dict.AuthorityOf(member)
	}
}

// Question returns the text that a cursor is bound to: the expression's source and its
// resolved strings. A handle that moves to another account invalidates the cursor.
func (e *Expr) Question() string {
	parts := []string{e.Source}
	for _, l := range e.Strings {
		parts = append(parts, l.S)
	}
	return strings.Join(parts, "\x00")
}

// AsOf returns the expression with its ages counted back from now.
func (e *Expr) AsOf(now time.Time) (*Expr, error) {
	again, err := e.words.Parse(e.Source, len(e.Source), now)
	if err == nil {
		again.Strings = e.Strings
	}
	return again, err
}

// KindAt returns the kind of edge that a field of a collection's records makes, nil if the
// field is not indexed. The path joins the field's names with dots.
func (v *Vocabulary) KindAt(collection, path string) *kinds.Info {
	of := v.Table.Collection(collection)
	if of == nil {
		return nil
	}
	for _, k := range of.Kinds {
		if k.To.Path() == path && !k.Kind.IsSelf() {
			return k
		}
	}
	return nil
}

// ActorsOf returns the expression of the accounts with an edge of kind k to target, nil if
// there can be no such edge. Expressions in text cannot name all of these sets.
func (v *Vocabulary) ActorsOf(k *kinds.Info, target string) *Expr {
	if k == nil || k.Kind.IsSelf() || !k.To.Form.Valid([]byte(target)) {
		return nil
	}
	l := Literal{S: target, Is: k.To.Is()}
	if !k.To.Form.IsString() && l.Unusable() != "" {
		return nil
	}
	return &Expr{words: v, Source: k.Source() + " " + target, Strings: []Literal{l}, Offsets: []int{0}, Root: Node{Op: OpReverse, Kind: k.Kind, Is: dict.DID}}
}
