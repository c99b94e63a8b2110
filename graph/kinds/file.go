package kinds

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// A file of kinds has one kind in each line: the collection, the path of the subject in its
// records, the type of the subject (did, at-uri, uri or text), and the names of its sets: the
// subjects of an account, the accounts that name a subject, and, if wanted, the records that name it.
// Lines that start with # are comments.
//
//	# collection              path              type    sets
//	sh.tangled.graph.follow   subject           did     tangledFollows  tangledFollowers
//	app.bsky.feed.post        self              at-uri  posts
//	app.bsky.feed.post        reply.parent.uri  at-uri  repliedTo       repliers          replies
//	app.bsky.feed.post        tags[]            text    tags            taggers
//	app.bsky.feed.post        facets[].features[app.bsky.richtext.facet#mention].did  did  mentions  mentioners
//
// The path self stands for the record, whose URI is then the subject. Its only set has an account's records. It
// comes before the lines that name sets of the collection's records.
//
// A step with a question mark may be missing: embed.record.record?.uri is embed.record.record.uri, or else
// embed.record.uri. A path goes through arrays like Constellation's: name[TYPE] stands for the elements of the array
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

// Posts are the usual kinds of posts, as lines of a file: the posts themselves, what they answer and quote (embeds are records,
// or records with media), and whom they mention.
const Posts = `
app.bsky.feed.post  self                      at-uri  posts
app.bsky.feed.post  reply.parent.uri          at-uri  repliedTo  repliers  replies
app.bsky.feed.post  embed.record.record?.uri  at-uri  quoted     quoters   quotes
app.bsky.feed.post  facets[].features[app.bsky.richtext.facet#mention].did  did  mentions  mentioners
`

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
	n := len(words)
	if isSelf := n > 1 && words[1] == "self"; n != 4 && isSelf || n != 5 && n != 6 && !isSelf {
		return k, fmt.Errorf("expected COLLECTION PATH did|at-uri|uri|text SUBJECTS ACCOUNTS [RECORDS], or COLLECTION self at-uri SUBJECTS; got %d words", n)
	}
	words = append(words, "", "")
	k = Info{Name: words[3], Collection: words[0], Forward: words[3], Reverse: words[4], Records: words[5], Optional: true}
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
	return strings.TrimSpace(strings.Join([]string{k.Collection, k.To.Path(), k.To.Form.String(), k.Forward, k.Reverse, k.Records}, " "))
}

// check checks a configured row.
func (k *Info) check() error {
	if _, err := syntax.ParseNSID(k.Collection); err != nil {
		return fmt.Errorf("%q is not the NSID of a collection", k.Collection)
	}
	if len(k.To.Field) == 0 || len(k.To.Field) > maxPath {
		return fmt.Errorf("the path %q has more than %d parts", k.To.Path(), maxPath)
	}
	if k.To.IsSelf() && (k.To.Form != ATURI || k.Reverse != "") {
		return errors.New("the subjects of the path self are of the type at-uri")
	}
	for i, step := range k.To.Field {
		if 0 < i && i < len(k.To.Field)-1 && !strings.ContainsAny(k.To.Field[i+1], "[?") { // else it is not a field name
			step = strings.TrimSuffix(step, "?")
		}
		key, elements, isArray := CutStep(step)
		switch {
		case !pathKey.MatchString(key) || len(key) > maxKey:
			return fmt.Errorf("the path %q has a part %q that is not a field name of up to %d letters", k.To.Path(), step, maxKey)
		case isArray && elements != "" && (!element.MatchString(elements) || len(elements) > maxType):
			return fmt.Errorf("the path %q has elements %q, which is not a $type such as app.bsky.richtext.facet#mention", k.To.Path(), elements)
		}
	}
	for i, name := range []string{k.Forward, k.Reverse, k.Records} {
		if optional := i == 2 || k.To.IsSelf(); (name != "" || !optional) && !setName.MatchString(name) || len(name) > maxName {
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

// ErrContradiction is returned if configured kinds contradict each other, or the kinds of the store.
var ErrContradiction = errors.New("contradictory kinds")

// Configure adds configured kinds to a store's table, and gives them numbers. Kinds that the table
// already has must be the same.
func Configure(t *Table, more []Info) (*Table, error) {
	count := map[Kind]Kind{} // of each sort
	have := t.Configured()
	for _, k := range have {
		first := k.To.first()
		count[first] = max(count[first], k.Kind-first+1)
	}
	all := slices.Clone(have)
	for _, k := range more {
		if i := slices.IndexFunc(all, func(was Info) bool { return was.Source() == k.Source() }); i >= 0 {
			was := &all[i]
			if was.To.Form != k.To.Form || was.Forward != k.Forward || was.Reverse != k.Reverse || k.Records != "" && was.Records != "" && k.Records != was.Records {
				return nil, fmt.Errorf("%w: %s is already indexed as %q, and cannot change to %q", ErrContradiction, k.Source(), was.Line(), k.Line())
			}
			was.Records = cmp.Or(k.Records, was.Records) // a name may be added: it changes nothing that is stored
			continue
		}
		first := k.To.first()
		if count[first] == MaxConfigured {
			return nil, fmt.Errorf("kinds: more than %d configured kinds of one sort: of records themselves, with arrays, or without", MaxConfigured)
		}
		k.Kind = first + count[first]
		count[first]++
		all = append(all, k)
	}
	return TableOf(all)
}

// first returns the first number of the kinds whose path is of the same sort.
func (e *End) first() Kind {
	switch {
	case e.IsSelf():
		return FirstSelf
	case e.IsMany():
		return FirstMany
	}
	return FirstConfigured
}
