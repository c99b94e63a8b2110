package language

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Vocabulary has the names that an expression may use: the operators, and the sets of a
// table of kinds.
type Vocabulary struct {
	Table     *kinds.Table
	vias      []Via          // the sets, and authors
	functions map[string]Via // these, and the operators, which have only an Op
}

// NewVocabulary returns the vocabulary of a table of kinds.
func NewVocabulary(t *kinds.Table) *Vocabulary {
	v := &Vocabulary{Table: t, functions: map[string]Via{
		"members": {Op: OpMembers}, "intersect": {Op: OpIntersect}, "union": {Op: OpUnion}, "except": {Op: OpExcept}, "rank": {Op: OpRank}, "blend": {Op: OpBlend}, "atleast": {Op: OpAtLeast}, "sample": {Op: OpSample}, "by": {Op: OpBy}, kinds.Labeled: {Op: opLabeled},
	}}
	for name := range shortNames {
		v.functions[name] = Via{Op: opShort}
	}
	add := func(name string, op Op, k kinds.Kind, takes kinds.Form, is dict.Namespace) {
		if name != "" { // a kind need not have all sets
			v.functions[name] = Via{name, op, k, takes, takes.Is(), is}
			v.vias = append(v.vias, v.functions[name])
		}
	}
	for i := range t.All {
		if k := &t.All[i]; k.HasSets() {
			add(k.Forward, OpForward, k.Kind, kinds.DID, k.To.Is())
			add(k.Reverse, OpReverse, k.Kind, k.To.Form, dict.DID)
			add(k.Records, OpLists, k.Kind, k.To.Form, dict.URI)
		}
	}
	add("lists", OpLists, kinds.ListItem, kinds.DID, dict.URI)
	add("listed", OpListed, kinds.ListMember, kinds.ATURI, dict.DID)
	add("authors", OpAuthors, 0, kinds.ATURI, dict.DID)
	return v
}

// Parse parses a set expression of at most most bytes. Ages in windows are counted back from
// now. Its errors are *SyntaxError.
func (v *Vocabulary) Parse(source string, most int, now time.Time) (*Expr, error) {
	return v.parse(source, most, now, 0)
}

// ParseAlone is Parse for a ranking that stands alone: a rank(…) may have more arguments then. Other expressions are as for Parse.
func (v *Vocabulary) ParseAlone(source string, most int, now time.Time) (*Expr, error) {
	e, err := v.parse(source, most, now, 1)
	if err == nil && e.Root.Rank != nil {
		e.Root.score()
	}
	return e, err
}

func (v *Vocabulary) parse(source string, most int, now time.Time, alone int) (*Expr, error) {
	p := &parser{e: &Expr{words: v, Now: now}, alone: alone}
	err := p.whole(source, most, func() (err error) { p.e.Root, err = p.expr(1); return err })
	if err != nil {
		return nil, err
	}
	return p.e, nil
}

type parser struct {
	e      *Expr
	i      int
	leaves int
	given  int // arguments of members
	ranks  int
	alone  int // the depth at which a ranking stands alone, or 0
}

// whole reads a source of at most most bytes, up to its end.
func (p *parser) whole(source string, most int, read func() error) error {
	if len(source) > most {
		return &SyntaxError{most, fmt.Sprintf("the expression has %d bytes; at most %d are allowed here, and %d in a form (POST)", len(source), most, MaxForm)}
	}
	p.e.Source, p.i = source, 0
	err := read()
	if p.space(); err == nil && p.i < len(source) {
		err = p.errorf(p.i, "unexpected %q after the end of the expression", Brief(source[p.i:]))
	}
	return err
}

func (p *parser) errorf(at int, format string, args ...any) error {
	return &SyntaxError{at, fmt.Sprintf(format, args...)}
}

// space skips spaces, and invisible characters.
func (p *parser) space() {
	for i, r := range p.e.Source[p.i:] {
		if !unicode.IsSpace(r) && !invisible(r) {
			p.i += i
			return
		}
	}
	p.i = len(p.e.Source)
}

// word reads up to a space or one of "(),", which no DID or AT URI contains.
func (p *parser) word() string {
	p.space()
	start := p.i
	for p.i < len(p.e.Source) {
		switch p.e.Source[p.i] {
		case ' ', '\t', '\n', '\r', '(', ')', ',':
			return p.e.Source[start:p.i]
		}
		p.i++
	}
	return p.e.Source[start:]
}

func (p *parser) expr(depth int) (Node, error) {
	p.space()
	start := p.i
	name := p.word()
	if name == "" {
		return Node{}, p.errorf(start, "expected a set")
	}
	if depth > MaxDepth {
		return Node{}, p.errorf(start, "the expression is nested more than %d deep", MaxDepth)
	}
	f, ok := p.e.words.functions[name]
	if !ok {
		return Node{}, p.errorf(start, "%q is not a set or an operator%s", Brief(name), p.e.words.didYouMean(name, p.fitting()))
	}
	if err := p.open(name); err != nil {
		return Node{}, err
	}
	n := Node{Op: f.Op, Kind: f.Kind, Offset: start}
	var err error
	switch f.Op {
	case OpForward, OpReverse, OpListed, OpLists, OpMembers, opLabeled:
		if p.leaves++; p.leaves > MaxLeaves {
			return Node{}, p.errorf(start, "the expression has more than %d sets", MaxLeaves)
		}
		if f.Op == opLabeled {
			err = p.labeled(&n)
		} else {
			err = p.literals(&n, name, f)
		}
	case OpRank:
		err = p.rank(&n, depth)
	case OpBlend:
		err = p.blend(&n, depth)
	case opShort:
		err = p.short(&n, name)
	case OpAtLeast:
		if n.Least, err = p.number("the number of sets", MaxLeaves); err != nil {
			return n, err
		}
		if more, err := p.next(name); err != nil || !more {
			return n, cmp.Or(err, p.errorf(start, "atleast takes a number and sets: atleast(2, E, E, E)"))
		}
		if err = p.operands(&n, name, depth); err == nil && n.Least > len(n.Args) {
			err = p.errorf(start, "atleast(%d, …) needs at least %[1]d sets, and has %d", n.Least, len(n.Args))
		}
	case OpSample:
		err = p.sample(&n, depth)
	case OpAuthors, OpBy:
		err = p.authored(&n, name, depth)
	default:
		err = p.operands(&n, name, depth)
	}
	return n, err
}

// fitting returns the names of all operators, and of the sets that take the argument that follows.
func (p *parser) fitting() []string {
	names := maps.Clone(p.e.words.functions)
	if rest, ok := strings.CutPrefix(strings.TrimSpace(p.e.Source[p.i:]), "("); ok {
		end := strings.IndexAny(rest, ",)")
		if l, ok := LiteralOf(strings.Trim(rest[:max(end, 0)], "\" \t\r\n")); ok {
			maps.DeleteFunc(names, func(_ string, via Via) bool { return via.Name != "" && via.From != l.Is })
		}
	}
	return slices.Collect(maps.Keys(names))
}

func (p *parser) open(name string) error {
	if p.space(); p.i == len(p.e.Source) || p.e.Source[p.i] != '(' {
		return p.errorf(p.i, `expected "(" after %q`, name)
	}
	p.i++
	return nil
}

// next reads the comma or the closing parenthesis after an argument.
func (p *parser) next(name string) (more bool, err error) {
	p.space()
	if p.i < len(p.e.Source) {
		switch p.e.Source[p.i] {
		case ',':
			p.i++
			return true, nil
		case ')':
			p.i++
			return false, nil
		}
	}
	return false, p.errorf(p.i, `expected "," or ")" in %s(…`, name)
}

func (p *parser) operands(n *Node, name string, depth int) error {
	for more := true; more; {
		arg, err := p.expr(depth + 1)
		if err != nil {
			return err
		}
		if len(n.Args) > 0 && arg.Is != n.Is {
			if before := (Node{Op: OpIntersect, Is: n.Is, Args: n.Args}); !arg.canBecome(n.Is) && before.canBecome(arg.Is) {
				for i := range n.Args {
					p.e.become(&n.Args[i], arg.Is)
				}
				n.Is = arg.Is
			}
		}
		if len(n.Args) > 0 && !arg.canBecome(n.Is) {
			for _, a := range append(n.Args, arg) {
				if a.isList {
					return p.errorf(a.Offset, "%v", errNotItsMembers)
				}
			}
			return p.errorf(arg.Offset, "%s cannot combine a set of %s with a set of %s", name, Plural(n.Is), Plural(arg.Is))
		}
		if len(n.Args) == 0 {
			n.Is = arg.Is
		}
		p.e.become(&arg, n.Is)
		n.Args = append(n.Args, arg)
		if more, err = p.next(name); err != nil {
			return err
		}
	}
	return nil
}

// argument reads a word, or a string in double quotes.
func (p *parser) argument() (s string, quoted bool, err error) {
	p.space()
	start := p.i
	if p.i == len(p.e.Source) || p.e.Source[p.i] != '"' {
		if s = p.word(); strings.Contains(s, `"`) {
			err = p.errorf(start, `%q has a double quote in it: write the whole string in double quotes, and \" for this one`, Brief(s))
		}
		return s, false, err
	}
	for p.i++; p.i < len(p.e.Source) && p.e.Source[p.i] != '"'; p.i++ {
		if p.e.Source[p.i] == '\\' {
			p.i++
		}
	}
	if p.i >= len(p.e.Source) {
		p.i = len(p.e.Source)
		return "", true, p.errorf(start, "the string that begins here has no double quote at its end")
	}
	p.i++
	if s, err = unquote(p.e.Source[start:p.i]); err != nil {
		err = p.errorf(start, "%v", err)
	}
	return s, true, err
}

// literals reads the arguments of a set, via, or of members.
func (p *parser) literals(n *Node, name string, via Via) error {
	n.First, n.Is = len(p.e.Strings), via.Is
	form := via.Form // not that of members
	for more := true; more; {
		p.space()
		start := p.i
		s, quoted, err := p.argument()
		switch {
		case err != nil:
			return err
		case s == "" && !quoted && form.IsString():
			return p.errorf(start, "%s(…) needs an argument: %s, in double quotes if it has spaces, commas, parentheses or double quotes", name, form.Described())
		case s == "" && !quoted:
			return p.errorf(start, "%s(…) needs an argument, such as a handle (@alice.example.com), a DID or an AT URI", name)
		}
		var l Literal
		want := form.Is()
		if n.Op == OpMembers {
			if p.given++; p.given > MaxGiven {
				return p.errorf(start, "more than %d arguments of members in one expression", MaxGiven)
			}
			l, err = p.member(n, s, quoted)
			want = n.Is
		} else {
			l, err = literalAs(s, quoted, form)
		}
		switch {
		case errors.Is(err, errNoName):
			hint := Hint(s)
			if hint == "" && n.Op == OpMembers {
				hint = "; put a text in double quotes"
			}
			return p.errorf(start, "the argument %q of %s%v%s", Brief(s), name, err, hint)
		case err != nil:
			return p.errorf(start, "the argument %q of %s%v", Brief(s), name, err)
		}
		if l.Is != want {
			return p.errorf(start, "the argument %q of %s is %s; %s takes %s", Brief(l.S), name, Singular(l.Is), name, Singular(want))
		}
		p.e.Strings, p.e.Offsets = append(p.e.Strings, l), append(p.e.Offsets, start)
		if n.Op == OpListed {
			n.By = len(p.e.Strings)
			p.e.Strings, p.e.Offsets = append(p.e.Strings, l.author()), append(p.e.Offsets, start)
		}
		if more, err = p.next(name); err != nil {
			return err
		}
		if more && n.Op != OpMembers {
			if name == within {
				n.Least, err = p.steps()
			} else {
				n.Window, err = p.window(name, name+" takes one argument, optionally followed by since=TIME and until=TIME")
			}
			if err != nil {
				return err
			}
			break
		}
	}
	n.Of, n.End = n.First, len(p.e.Strings)
	if n.Op == OpMembers && n.End == n.First+1 {
		_, path, _ := strings.Cut(strings.TrimPrefix(p.e.Strings[n.First].S, "at://"), "/")
		n.isList = strings.HasPrefix(path, "app.bsky.graph.list/")
	}
	return nil
}

// member reads an argument of members. If all arguments are DIDs in double quotes, the set around decides
// whether these are accounts or texts.
func (p *parser) member(n *Node, s string, quoted bool) (l Literal, err error) {
	l = Literal{S: s, Is: dict.DID}
	either := quoted && kinds.DID.Valid([]byte(s)) && l.Unusable() == ""
	switch {
	case either:
	case quoted:
		l, err = literalAs(s, true, kinds.ATURI, kinds.Link, kinds.Text)
	default:
		l, err = literalAs(s, false)
	}
	n.End = len(p.e.Strings)
	switch {
	case n.End == n.First:
		n.Is, n.eitherIs = l.Is, either
	case either:
		l.Is = n.Is
	case n.eitherIs:
		p.e.become(n, l.Is)
		n.eitherIs = false
	}
	return l, err
}

// times are a window, as written.
type times struct{ since, until string }

// option reads the value of since or until, and reports whether name is one of them.
func (t *times) option(p *parser, name string) (known bool, err error) {
	to := map[string]*string{"since": &t.since, "until": &t.until}[name]
	if to == nil {
		return false, nil
	}
	*to, err = p.value(name)
	return true, err
}

// window is the window of the times, which were read from a place on.
func (t *times) window(p *parser, at int) (Window, error) {
	w, isAge, err := ParseWindow(t.since, t.until, p.e.Now)
	if err != nil {
		return w, p.errorf(at, "%v", err)
	}
	p.e.HasAge = p.e.HasAge || isAge
	return w, nil
}

// steps reads the number of within(A, N).
func (p *parser) steps() (n int, err error) {
	more := false
	if n, err = p.number("the number of steps", maxWithin); err == nil {
		more, err = p.next(within)
	}
	if more {
		err = p.errorf(p.i, "within takes an account and a number")
	}
	return n, err
}

// window reads the options of a function that takes only since and until.
func (p *parser) window(function, usage string) (w Window, err error) {
	var t times
	at := p.i
	if err = p.options(function, usage, func(name string) (bool, error) { return t.option(p, name) }); err != nil {
		return w, err
	}
	return t.window(p, at)
}

// value reads the value of an option.
func (p *parser) value(name string) (string, error) {
	p.space()
	at := p.i
	word := p.word()
	if word == "" {
		return "", p.errorf(at, "expected a value after %s=", name)
	}
	return word, nil
}

// options reads name=value, up to the end of the arguments of a function. option reads the value of a name, and reports whether the
// function takes it; usage says what it takes.
func (p *parser) options(function, usage string, option func(name string) (known bool, err error)) error {
	seen := map[string]bool{}
	for more := true; more; {
		p.space()
		at := p.i
		name, ok := p.name()
		if seen[name] {
			return p.errorf(at, "%s is given twice", name)
		}
		seen[name] = ok
		var err error
		if ok {
			ok, err = option(name)
		}
		if err == nil && !ok {
			err = p.errorf(at, "%s", usage)
		}
		if err == nil {
			more, err = p.next(function)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// name reads the name before an equals sign, and the sign.
func (p *parser) name() (name string, ok bool) {
	start := p.i
	for p.i < len(p.e.Source) && 'a' <= p.e.Source[p.i]|0x20 && p.e.Source[p.i]|0x20 <= 'z' {
		p.i++
	}
	name = p.e.Source[start:p.i]
	p.space()
	if p.i == len(p.e.Source) || p.e.Source[p.i] != '=' || name == "" {
		return name, false
	}
	p.i++
	return name, true
}

// number reads a number from 1 to most.
func (p *parser) number(name string, most int) (int, error) {
	at := p.i
	n, err := number(name, p.word(), most)
	if err != nil {
		err = p.errorf(at, "%v", err)
	}
	return n, err
}

func number(name, word string, most int) (int, error) {
	n, err := strconv.ParseUint(word, 10, 32)
	if err != nil || n < 1 || n > uint64(most) {
		return 0, fmt.Errorf("%s is %q; it must be a number from 1 to %d", name, Brief(word), most)
	}
	return int(n), nil
}
