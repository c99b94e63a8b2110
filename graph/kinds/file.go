package kinds

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/intern/dict"
)

// A file of kinds has one in each line: the collection, the path to what its records name,
// whether that is a did or an at-uri, and the names of the two sets: of what an account
// names, and of who names it. # begins a line that is a remark.
//
//	# collection              path              names   sets
//	sh.tangled.graph.follow   subject           did     tangledFollows  tangledFollowers
//	app.bsky.feed.post        reply.parent.uri  at-uri  repliedTo       repliers
//	app.bsky.feed.post        embed.record.uri  at-uri  quoted          quoters
//
// A kind's name in stats and metrics is that of its first set. A record without the field
// makes no edge.

const (
	maxPath = 8  // keys
	maxKey  = 23 // bytes of one: CBOR has the length of those in one byte with the type
	maxName = 40 // bytes
)

var (
	setName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	pathKey = regexp.MustCompile(`^[A-Za-z$_][A-Za-z0-9$_-]*$`)
)

// Parse reads a file of kinds, which have no numbers yet. Its error names the line.
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
		return k, fmt.Errorf("it has %d words and must have five: COLLECTION PATH did|at-uri SET SET", len(words))
	}
	k = Info{Name: words[3], Collection: words[0], Forward: words[3], Reverse: words[4], Optional: true}
	k.To.Field = strings.Split(words[1], ".")
	switch words[2] {
	case "did":
		k.To.Is = dict.DID
	case "at-uri":
		k.To.Is = dict.URI
	default:
		return k, fmt.Errorf("%q is neither did nor at-uri", words[2])
	}
	return k, k.check()
}

// Line returns a row that is not built in as a line of a file of kinds.
func (k *Info) Line() string {
	return strings.Join([]string{k.Collection, strings.Join(k.To.Field, "."), typeOf(k), k.Forward, k.Reverse}, " ")
}

// check checks a row that is not built in.
func (k *Info) check() error {
	if _, err := syntax.ParseNSID(k.Collection); err != nil {
		return fmt.Errorf("%q is no NSID of a collection", k.Collection)
	}
	if len(k.To.Field) == 0 || len(k.To.Field) > maxPath {
		return fmt.Errorf("the path %q has more than %d parts", strings.Join(k.To.Field, "."), maxPath)
	}
	for _, key := range k.To.Field {
		switch {
		case strings.HasSuffix(key, "]"):
			return fmt.Errorf("the path %q goes through a list, and a record would make many edges: that is not supported", strings.Join(k.To.Field, "."))
		case !pathKey.MatchString(key) || len(key) > maxKey:
			return fmt.Errorf("the path %q has a part %q that is no name of a field of up to %d letters", strings.Join(k.To.Field, "."), key, maxKey)
		}
	}
	for _, name := range []string{k.Forward, k.Reverse} {
		if !setName.MatchString(name) || len(name) > maxName {
			return fmt.Errorf("%q is no name of a set: a letter, then letters, digits and _, %d at most", name, maxName)
		}
	}
	if k.Name != k.Forward || k.Verb != "" || k.Object != "" || k.Known || !k.Optional || k.To.Is != dict.DID && k.To.Is != dict.URI {
		return errors.New("its row is not one that can be configured")
	}
	return nil
}

// ErrContradiction is returned where what a store is to be configured with contradicts
// what it has.
var ErrContradiction = errors.New("the store has other kinds")

// Configure returns the table of a store that has a table already and is configured with
// more kinds, to which it gives numbers. What it has already may be among them; it must then
// be the same.
func Configure(t *Table, more []Info) (*Table, error) {
	next := FirstConfigured
	have := t.Configured()
	for _, k := range have {
		next = max(next, k.Kind+1)
	}
	all := append([]Info(nil), have...)
add:
	for _, k := range more {
		for i := range have {
			same := have[i].Source() == k.Source()
			switch {
			case same && have[i].To.Is == k.To.Is && have[i].Forward == k.Forward && have[i].Reverse == k.Reverse:
				continue add
			case same:
				return nil, fmt.Errorf("%w: of %s it has %s as the sets %s and %s, and is asked to have %s as %s and %s",
					ErrContradiction, k.Source(), typeOf(&have[i]), have[i].Forward, have[i].Reverse, typeOf(&k), k.Forward, k.Reverse)
			}
		}
		if next >= FirstConfigured+MaxConfigured {
			return nil, fmt.Errorf("kinds: there are more than %d that are not built in", MaxConfigured)
		}
		k.Kind = next
		next++
		all = append(all, k)
	}
	return tableOf(all, len(have))
}

func typeOf(k *Info) string {
	if k.To.Is == dict.DID {
		return "did"
	}
	return "at-uri"
}
