// Package query answers questions about the graph: it parses set expressions,
// evaluates them, and serves them over HTTP as XRPC. It does not write, and
// knows nothing of where the graph comes from or how it is stored.
package query

import (
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// Bounds of an expression.
const (
	MaxExpr   = 16 << 10 // bytes, in a URL
	MaxForm   = 1 << 20  // bytes, in a form
	MaxLeaves = 64
	MaxDepth  = 32
	MaxGiven  = 20_000 // arguments of members, in all
)

// A node is a set expression, or a part of one.
type node struct {
	op     op
	kind   kinds.Kind     // of a leaf
	of     int            // of a leaf: the index of its argument in Expr.strings
	by     int            // of listed: that of the list's author
	window ask.Window     // of a leaf
	args   []node         // of an operator
	first  int            // of members: its arguments are strings[first:last]
	last   int            //
	is     dict.Namespace // what the set is of
	offset int            // in the source
}

type op uint8

const (
	opForward   op = iota // the subjects of an actor: follows, likes, …
	opReverse             // the actors of a subject: followers, likers, …
	opListed              // the accounts on a list
	opLists               // the lists that an account is on
	opMembers             // the ones given
	opIntersect           // in all
	opUnion               // in any
	opExcept              // in the first, in none of the others
)

// isSet reports whether it is one set that the index has.
func (o op) isSet() bool { return o <= opLists }

// An Expr is a parsed set expression.
type Expr struct {
	words   *vocabulary
	source  string
	root    node
	strings []literal
	offsets []int     // of strings, in the source
	now     time.Time // what ages are counted from
	hasAge  bool      // there is one
}

// literal is a DID or a URI in an expression.
type literal struct {
	s      string
	is     dict.Namespace
	handle string // of its account, until it is resolved
}

// author returns the account whose record a URI names.
func (l literal) author() literal {
	if l.handle != "" {
		return literal{"@" + l.handle, dict.DID, l.handle}
	}
	return literal{s: ask.AuthorityOf(l.s), is: dict.DID}
}

// info returns the row of a leaf's kind.
func (e *Expr) info(n *node) *kinds.Info { return e.words.table.Info(n.kind) }

// Type returns what the set is of.
func (e *Expr) Type() dict.Namespace { return e.root.is }

// unusable says why a valid string names nothing that the index could know, or
// nothing.
func (l literal) unusable() string {
	if l.handle != "" {
		return ""
	}
	did := l.s
	if l.is == dict.URI {
		did, _, _ = strings.Cut(strings.TrimPrefix(l.s, "at://"), "/")
	}
	if id, ok := strings.CutPrefix(did, "did:plc:"); ok && !syntax.ValidPLC(id) {
		return "a did:plc has 24 characters behind did:plc:, of a to z and 2 to 7"
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

// Point shows the place in the expression: the part of it around the place, and
// under that a caret.
func (e *SyntaxError) Point(source string) string {
	const around = 60
	at := min(max(e.Offset, 0), len(source))
	from, to := max(0, at-around), min(len(source), at+around)
	visible := func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}
	part := strings.Map(visible, strings.ToValidUTF8(source[from:to], "?"))
	before := strings.Map(visible, strings.ToValidUTF8(source[from:at], "?"))
	return part + "\n" + strings.Repeat(" ", utf8.RuneCountInString(before)) + "^"
}

// nearest returns the name that a word may be meant for, "" if none is near.
func nearest(word string, names iter.Seq[string]) string {
	const longest = 30 // longer words are not meant for any name here
	if len(word) > longest {
		return ""
	}
	best, least := "", len(word)/3+2
	for name := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < least || d == least && best != "" && name < best {
			best, least = name, d
		}
	}
	return best
}

// distance is Levenshtein's: how many letters are to be added, removed or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := corner
			if a[i] != b[j] {
				d++
			}
			corner = row[j+1]
			row[j+1] = min(d, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

type function struct {
	op   op
	kind kinds.Kind
}

// vocabulary is what an expression may name: the operators, and what a table of kinds
// names.
type vocabulary struct {
	table     *kinds.Table
	functions map[string]function
}

func newVocabulary(t *kinds.Table) *vocabulary {
	f := map[string]function{
		"members": {op: opMembers}, "intersect": {op: opIntersect}, "union": {op: opUnion}, "except": {op: opExcept},
		"listed": {opListed, kinds.ListMember}, "lists": {opLists, kinds.ListItem},
	}
	for i := range t.All {
		if k := &t.All[i]; k.HasSets() {
			f[k.Forward] = function{opForward, k.Kind}
			f[k.Reverse] = function{opReverse, k.Kind}
		}
	}
	return &vocabulary{t, f}
}

// builtIn is the vocabulary of what is built in.
var builtIn = newVocabulary(kinds.BuiltIn)

// Parse parses a set expression of sets that are built in. Its errors are *SyntaxError.
func Parse(source string) (*Expr, error) { return builtIn.parse(source, MaxExpr, time.Now()) }

// parse parses a set expression of so many bytes at most, whose ages are counted from now.
func (v *vocabulary) parse(source string, most int, now time.Time) (*Expr, error) {
	p := &parser{e: &Expr{words: v, source: source, now: now}}
	if len(source) > most {
		return nil, &SyntaxError{most, fmt.Sprintf("the expression has %d bytes; at most %d are allowed here, and %d in a form (POST)", len(source), most, MaxForm)}
	}
	root, err := p.expr(1)
	if err != nil {
		return nil, err
	}
	if p.space(); p.i < len(source) {
		return nil, p.errorf(p.i, "%q after the end of the expression", brief(source[p.i:]))
	}
	p.e.root = root
	return p.e, nil
}

type parser struct {
	e      *Expr
	i      int
	leaves int
	given  int // arguments of members
}

func (p *parser) errorf(at int, format string, args ...any) error {
	return &SyntaxError{at, fmt.Sprintf(format, args...)}
}

func brief(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func (p *parser) space() {
	for p.i < len(p.e.source) {
		switch p.e.source[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// word reads everything up to a space or one of ( ) , which no DID or AT URI
// contains.
func (p *parser) word() string {
	p.space()
	start := p.i
	for p.i < len(p.e.source) {
		switch p.e.source[p.i] {
		case ' ', '\t', '\n', '\r', '(', ')', ',':
			return p.e.source[start:p.i]
		}
		p.i++
	}
	return p.e.source[start:]
}

func (p *parser) expr(depth int) (node, error) {
	p.space()
	start := p.i
	name := p.word()
	if name == "" {
		return node{}, p.errorf(start, "a set is missing here")
	}
	if depth > MaxDepth {
		return node{}, p.errorf(start, "nested deeper than %d", MaxDepth)
	}
	f, ok := p.e.words.functions[name]
	if !ok {
		if near := nearest(name, maps.Keys(p.e.words.functions)); near != "" {
			return node{}, p.errorf(start, "%q is not a set or an operator; did you mean %s?", name, near)
		}
		return node{}, p.errorf(start, "%q is not a set or an operator", brief(name))
	}
	if err := p.open(name); err != nil {
		return node{}, err
	}
	n := node{op: f.op, kind: f.kind, offset: start}
	var err error
	switch f.op {
	case opForward, opReverse, opListed, opLists, opMembers:
		if p.leaves++; p.leaves > MaxLeaves {
			return node{}, p.errorf(start, "more than %d leaves", MaxLeaves)
		}
		err = p.literals(&n, name)
	default:
		err = p.operands(&n, name, depth)
	}
	return n, err
}

func (p *parser) open(name string) error {
	if p.space(); p.i == len(p.e.source) || p.e.source[p.i] != '(' {
		return p.errorf(p.i, "%q must be followed by (", name)
	}
	p.i++
	return nil
}

// next reads the comma or the parenthesis after an argument.
func (p *parser) next(name string) (more bool, err error) {
	p.space()
	if p.i < len(p.e.source) {
		switch p.e.source[p.i] {
		case ',':
			p.i++
			return true, nil
		case ')':
			p.i++
			return false, nil
		}
	}
	return false, p.errorf(p.i, "%s(… must go on with , or )", name)
}

func (p *parser) operands(n *node, name string, depth int) error {
	for more := true; more; {
		arg, err := p.expr(depth + 1)
		if err != nil {
			return err
		}
		if len(n.args) > 0 && arg.is != n.is {
			return p.errorf(arg.offset, "%s mixes a set of %s with one of %s", name, plural(n.is), plural(arg.is))
		}
		n.is = arg.is
		n.args = append(n.args, arg)
		if more, err = p.next(name); err != nil {
			return err
		}
	}
	return nil
}

func plural(ns dict.Namespace) string {
	if ns == dict.DID {
		return "DIDs"
	}
	return "AT URIs"
}

func singular(ns dict.Namespace) string {
	if ns == dict.DID {
		return "a DID"
	}
	return "an AT URI"
}

// insteadOf says what is to be given in the place of what people have at hand.
func insteadOf(s string) string {
	switch {
	case syntax.ValidHandle(s):
		return ": a handle is written with an @ before it"
	case strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://"):
		return ": it is a web address, but none of an account or a post at https://bsky.app/profile/…"
	}
	return ""
}

func (p *parser) literals(n *node, name string) error {
	n.first = len(p.e.strings)
	info := p.e.words.table.Info(n.kind) // nil for members
	for more := true; more; {
		p.space()
		start := p.i
		word := p.word()
		if word == "" {
			return p.errorf(start, "an argument of %s is missing", name)
		}
		l, ok := literalOf(word)
		if !ok && namesSpace(word) {
			return p.errorf(start, "the argument %q of %s names a space; spaces are not indexed", brief(word), name)
		}
		if !ok {
			return p.errorf(start, "the argument %q of %s is neither a DID nor an AT URI%s", brief(word), name, insteadOf(word))
		}
		want := l.is
		switch n.op {
		case opForward:
			want, n.is = dict.DID, info.To.Is
		case opReverse:
			want, n.is = info.To.Is, dict.DID
		case opListed:
			want, n.is = dict.URI, dict.DID
		case opLists:
			want, n.is = dict.DID, dict.URI
		default:
			if len(p.e.strings) > n.first {
				want = n.is
			}
			n.is = want
		}
		if n.op == opMembers {
			if p.given++; p.given > MaxGiven {
				return p.errorf(start, "more than %d arguments of members in one expression", MaxGiven)
			}
		}
		if l.is != want {
			return p.errorf(start, "the argument %q of %s is %s, it takes %s", brief(l.s), name, singular(l.is), singular(want))
		}
		if why := l.unusable(); why != "" {
			return p.errorf(start, "the argument %q of %s: %s", brief(l.s), name, why)
		}
		p.e.strings, p.e.offsets = append(p.e.strings, l), append(p.e.offsets, start)
		if n.op == opListed {
			n.by = len(p.e.strings)
			p.e.strings, p.e.offsets = append(p.e.strings, l.author()), append(p.e.offsets, start)
		}
		var err error
		if more, err = p.next(name); err != nil {
			return err
		}
		if more && n.op != opMembers {
			if err := p.times(n, name); err != nil {
				return err
			}
			break
		}
	}
	n.of, n.last = n.first, len(p.e.strings)
	return nil
}

// times reads the window of a leaf: since=T, until=T or both.
func (p *parser) times(n *node, name string) error {
	var since, until string
	start := p.i
	for more := true; more; {
		p.space()
		at := p.i
		which, t, ok := strings.Cut(p.word(), "=")
		var to *string
		switch which {
		case "since":
			to = &since
		case "until":
			to = &until
		}
		switch {
		case to == nil || !ok:
			return p.errorf(at, "%s takes one argument, and since=T and until=T", name)
		case t == "":
			return p.errorf(at, "the time of %s is missing", which)
		case *to != "":
			return p.errorf(at, "%s is given twice", which)
		}
		*to = t
		var err error
		if more, err = p.next(name); err != nil {
			return err
		}
	}
	w, isAge, err := window(since, until, p.e.now)
	if err != nil {
		return p.errorf(start, "%v", err)
	}
	n.window = w
	p.e.hasAge = p.e.hasAge || isAge
	return nil
}
