package kinds

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/intern/dict"
)

// A file of kinds has one kind per line: the collection; the path to the subject in its
// records; its type, did or at-uri; and the names of the forward and the reverse set. # begins
// a comment.
//
//	# collection              path              names   sets
//	sh.tangled.graph.follow   subject           did     tangledFollows  tangledFollowers
//	app.bsky.feed.post        reply.parent.uri  at-uri  repliedTo       repliers
//	app.bsky.feed.post        embed.record.uri  at-uri  quoted          quoters
//
// The name of the forward set is also the kind's name in stats and metrics. A record without
// the field makes no edge.

const (
	maxPath = 8  // keys
	maxKey  = 23 // bytes of a key: up to here, CBOR has the length in the byte of the type
	maxName = 40 // bytes
)

var (
	setName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	pathKey = regexp.MustCompile(`^[A-Za-z$_][A-Za-z0-9$_-]*$`)
)

// Parse reads a file of kinds. They have no numbers yet. An error names the line.
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
		return k, fmt.Errorf("expected 5 words, COLLECTION PATH did|at-uri SET SET, got %d", len(words))
	}
	k = Info{Name: words[3], Collection: words[0], From: Author, Forward: words[3], Reverse: words[4], Optional: true}
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

// Line returns a configured kind as a line of a file of kinds.
func (k *Info) Line() string {
	return strings.Join([]string{k.Collection, strings.Join(k.To.Field, "."), typeOf(k), k.Forward, k.Reverse}, " ")
}

// check validates a configured kind.
func (k *Info) check() error {
	if _, err := syntax.ParseNSID(k.Collection); err != nil {
		return fmt.Errorf("the collection %q is not an NSID", k.Collection)
	}
	if len(k.To.Field) == 0 || len(k.To.Field) > maxPath {
		return fmt.Errorf("the path %q has more than %d parts", strings.Join(k.To.Field, "."), maxPath)
	}
	for _, key := range k.To.Field {
		switch {
		case strings.HasSuffix(key, "]"):
			return fmt.Errorf("the path %q goes through a list: a record would make many edges, which is not supported", strings.Join(k.To.Field, "."))
		case !pathKey.MatchString(key) || len(key) > maxKey:
			return fmt.Errorf("the path %q has the part %q, which is not a field name of at most %d letters", strings.Join(k.To.Field, "."), key, maxKey)
		}
	}
	for _, name := range []string{k.Forward, k.Reverse} {
		if !setName.MatchString(name) || len(name) > maxName {
			return fmt.Errorf("the set name %q is invalid: expected a letter, then letters, digits and _; at most %d", name, maxName)
		}
	}
	if k.Name != k.Forward || !k.From.IsAuthor() || k.Known || !k.Optional || k.To.Is != dict.DID && k.To.Is != dict.URI {
		return errors.New("such a kind cannot be configured")
	}
	return nil
}

// ErrContradiction is returned by Configure if a kind contradicts one that the store has.
var ErrContradiction = errors.New("the store has other kinds")

// Configure adds kinds to the table of a store, and gives them numbers. A kind that the store
// already has must be unchanged.
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
				return nil, fmt.Errorf("%w: it has %s of type %s as the sets %s and %s; the configuration has type %s as %s and %s",
					ErrContradiction, k.Source(), typeOf(&have[i]), have[i].Forward, have[i].Reverse, typeOf(&k), k.Forward, k.Reverse)
			}
		}
		if next >= FirstConfigured+MaxConfigured {
			return nil, fmt.Errorf("kinds: more than %d are configured", MaxConfigured)
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
