package kinds

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// A file of kinds has one kind in each line: the collection, the path of the subject in its
// records, the type of the subject (did, at-uri, uri or text), and the names of the two sets: the
// subjects of an account, and the accounts that name a subject. Lines that start with # are comments.
//
//	# collection              path              type    sets
//	sh.tangled.graph.follow   subject           did     tangledFollows  tangledFollowers
//	app.bsky.feed.post        reply.parent.uri  at-uri  repliedTo       repliers
//	app.bsky.feed.post        tags[]            text    tags            taggers
//	app.bsky.feed.post        facets[].features[app.bsky.richtext.facet#mention].did  did  mentions  mentioners
//
// A path goes through arrays like Constellation's: name[TYPE] stands for the elements of the array
// name that are objects of that $type, and name[] for its other elements: strings, and objects without
// a $type. A record then makes an edge to each of its subjects (Kind.IsMany).
//
// A kind's name in stats and metrics is the name of its first set. A record without the field
// makes no edge.

const (
	maxPath = 8   // keys
	maxKey  = 23  // bytes of a key: CBOR then has type and length in one byte
	maxType = 400 // bytes of an element's $type: an NSID of up to 317, a # and a name
	maxName = 40  // bytes
)

var (
	setName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	pathKey = regexp.MustCompile(`^[A-Za-z$_][A-Za-z0-9$_-]*$`)
	element = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.-]*(#[A-Za-z][A-Za-z0-9_-]*)?$`)
)

// Parse parses a file of kinds. They have no numbers yet. Its error names the line.
func Parse(file string) (all []Info, err error) {
	for n, line := range strings.Split(file, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseLine(line)
		if err == nil {
			all = append(all, k)
			_, err = Configure(BuiltIn, all)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return all, nil
}

func parseLine(line string) (k Info, err error) {
	words := strings.Fields(line)
	if len(words) != 5 {
		return k, fmt.Errorf("expected five words, COLLECTION PATH did|at-uri|uri|text SET SET, got %d", len(words))
	}
	k = Info{Name: words[3], Collection: words[0], Forward: words[3], Reverse: words[4], Optional: true}
	if k.To.Form, err = FormOf(words[2]); err != nil {
		return k, err
	}
	if k.To.Field, err = SplitPath(words[1]); err != nil {
		return k, err
	}
	return k, k.check()
}

// SplitPath returns the steps of a path. The dots in the type of an element do not divide it.
func SplitPath(path string) (steps []string, err error) {
	start, within := 0, false
	for i := 0; i <= len(path); i++ {
		switch {
		case i == len(path) && within:
			return nil, fmt.Errorf("the path %q has a [ without a ]", path)
		case i == len(path), path[i] == '.' && !within:
			steps = append(steps, path[start:i])
			start = i + 1
		case path[i] == '[' && !within:
			within = true
		case path[i] == ']':
			within = false
		}
	}
	return steps, nil
}

// Line returns a configured row as a line of a file of kinds.
func (k *Info) Line() string {
	return strings.Join([]string{k.Collection, k.To.Path(), k.To.Form.String(), k.Forward, k.Reverse}, " ")
}

// check checks a configured row.
func (k *Info) check() error {
	if _, err := syntax.ParseNSID(k.Collection); err != nil {
		return fmt.Errorf("%q is not the NSID of a collection", k.Collection)
	}
	if len(k.To.Field) == 0 || len(k.To.Field) > maxPath {
		return fmt.Errorf("the path %q has more than %d parts", k.To.Path(), maxPath)
	}
	for _, step := range k.To.Field {
		key, elements, isArray := CutStep(step)
		switch {
		case !pathKey.MatchString(key) || len(key) > maxKey:
			return fmt.Errorf("the path %q has a part %q that is not a field name of up to %d letters", k.To.Path(), step, maxKey)
		case isArray && elements != "" && (!element.MatchString(elements) || len(elements) > maxType):
			return fmt.Errorf("the path %q has elements %q, which is not a $type such as app.bsky.richtext.facet#mention", k.To.Path(), elements)
		}
	}
	for _, name := range []string{k.Forward, k.Reverse} {
		if !setName.MatchString(name) || len(name) > maxName {
			return fmt.Errorf("%q is not a name for a set: a letter, then letters, digits and _, at most %d", name, maxName)
		}
	}
	if k.Name != k.Forward || k.Verb != "" || k.Object != "" || !k.Optional || k.To.Form > Text {
		return errors.New("the row is only valid for built-in kinds")
	}
	return nil
}

// CutStep divides a step of a path into the name of the field and, if the field is an array, the $type
// of the elements that the path goes through, "" for elements without one.
func CutStep(step string) (key, elements string, isArray bool) {
	at := strings.IndexByte(step, '[')
	if at < 0 || !strings.HasSuffix(step, "]") {
		return step, "", false
	}
	return step[:at], step[at+1 : len(step)-1], true
}

// ErrContradiction is returned if the configured kinds contradict the kinds of the store.
var ErrContradiction = errors.New("the store has other kinds")

// Configure adds configured kinds to a store's table, and gives them numbers. Kinds that the table
// already has must be the same.
func Configure(t *Table, more []Info) (*Table, error) {
	next := map[bool]Kind{false: FirstConfigured, true: FirstMany}
	have := t.Configured()
	for _, k := range have {
		next[k.Kind.IsMany()] = max(next[k.Kind.IsMany()], k.Kind+1)
	}
	all := append([]Info(nil), have...)
add:
	for _, k := range more {
		for i := range have {
			same := have[i].Source() == k.Source()
			switch {
			case same && have[i].To.Form == k.To.Form && have[i].Forward == k.Forward && have[i].Reverse == k.Reverse:
				continue add
			case same:
				return nil, fmt.Errorf("%w: %s is indexed as %s with the sets %s and %s, and cannot change to %s with %s and %s",
					ErrContradiction, k.Source(), have[i].To.Form, have[i].Forward, have[i].Reverse, k.To.Form, k.Forward, k.Reverse)
			}
		}
		many := k.To.IsMany()
		if next[many] >= firstOf(many)+MaxConfigured {
			return nil, fmt.Errorf("kinds: more than %d configured kinds %s arrays", MaxConfigured, map[bool]string{false: "without", true: "with"}[many])
		}
		k.Kind = next[many]
		next[many]++
		all = append(all, k)
	}
	return tableOf(all, len(have))
}

func firstOf(many bool) Kind {
	if many {
		return FirstMany
	}
	return FirstConfigured
}
