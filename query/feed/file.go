package feed

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/language"
	"skein.blue/query/rank"
)

// A file of feeds has one feed in each paragraph: its name, which is the key of its record (app.bsky.feed.generator), an equals
// sign, a query, and options. Lines that begin with a space continue the previous line; lines that begin with # are comments.
//
//	# liked by the accounts that I follow, and not by me: one post of an author on a page
//	friends-today = rank(of=follows($viewer), via=likes, since=24h, except=likes($viewer)), each=1
//	# two of these, then one of an account's newest likes
//	both = mix(2, rank(of=follows($viewer), via=likes, since=24h), 1, likes(did:plc:…)), seen=hide
//
// rank takes the parameters of the method blue.skein.graph.rank. Anything else is a set
// expression of AT URIs, whose posts the feed shows, newest first. mix takes from several of both in turn. $viewer is the DID of
// the viewer. The options are fields of feed.

// feed is a feed of the file.
type feed struct {
	name    string
	line    int
	shows   string // the query and the options, as written in the file
	sources []source
	// viewer reports that the feed depends on the viewer, who must send a token.
	viewer bool
	did    string // of the viewer, for one request

	each int    // the most posts of an author on a page; 0: any number
	pin  string // the URI of a post that comes first; "": none
	hide bool   // what the viewer has seen

	dead, replies kinds.Kind // by which posts that are gone, and replies, are left out; 0: they are not
}

// source is a query of a feed: a set or a ranking.
type source struct {
	weight int // how many posts it gives in its turn
	text   string
	ranked bool // it is a ranking
}

// parseFeeds reads a file of feeds. Its error names the line.
func parseFeeds(words *language.Vocabulary, file string) (feeds []feed, err error) {
	type paragraph struct {
		line int
		text string
	}
	var all []paragraph
	for n, line := range strings.Split(file, "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		case line[0] == ' ' || line[0] == '\t':
			if len(all) == 0 {
				return nil, fmt.Errorf("line %d continues a feed, but no feed precedes it", n+1)
			}
			all[len(all)-1].text += " " + trimmed
		default:
			all = append(all, paragraph{n + 1, trimmed})
		}
	}
	for _, p := range all {
		f, err := parseFeed(words, p.text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
		f.line = p.line
		if i := slices.IndexFunc(feeds, func(g feed) bool { return g.name == f.name }); i >= 0 {
			return nil, fmt.Errorf("line %d: the feed %s is already defined on line %d", p.line, f.name, feeds[i].line)
		}
		feeds = append(feeds, f)
	}
	return feeds, nil
}

func parseFeed(words *language.Vocabulary, text string) (f feed, err error) {
	name, shows, ok := strings.Cut(text, "=")
	f.name, shows = strings.TrimSpace(name), strings.TrimSpace(shows)
	if !ok || !dict.ValidRkey(f.name) {
		return f, fmt.Errorf("%q is not a feed; write NAME = QUERY", language.Brief(text))
	}
	f.shows, f.viewer = shows, strings.Contains(shows, language.ViewerName)
	if err := f.parse(words); err != nil {
		return f, fmt.Errorf("feed %s: %w", f.name, err)
	}
	return f, nil
}

// parse reads the query and the options.
func (f *feed) parse(words *language.Vocabulary) error {
	parts := rank.Arguments(f.shows)
	query := strings.TrimSpace(parts[0])
	arguments := []string{"1", query}
	if inside, mixed := strings.CutPrefix(query, "mix("); mixed {
		if inside, mixed = strings.CutSuffix(inside, ")"); !mixed {
			return errors.New(`expected ")" at the end of mix(…`)
		}
		if arguments = rank.Arguments(inside); len(arguments)%2 != 0 {
			return errors.New("mix takes pairs of a number and a query: mix(2, rank(…), 1, likes(…))")
		}
	}
	for pair := range slices.Chunk(arguments, 2) {
		s, err := parseSource(words, strings.TrimSpace(pair[1]))
		if err != nil {
			return err
		}
		if s.weight, err = inRange(pair[0]); err != nil {
			return fmt.Errorf("mix: %w", err)
		}
		f.sources = append(f.sources, s)
	}
	given := map[string]bool{}
	for _, part := range parts[1:] {
		option, value, _ := strings.Cut(part, "=")
		option, value = strings.TrimSpace(option), strings.TrimSpace(value)
		once := option
		if option == "without" { // it may be given with both values
			once += "=" + value
		}
		if given[once] {
			return fmt.Errorf("%s is given twice", once)
		}
		given[once] = true
		if err := f.set(words.Table, option, value); err != nil {
			return err
		}
	}
	return nil
}

// set sets an option.
func (f *feed) set(t *kinds.Table, option, value string) (err error) {
	switch option {
	case "each":
		if f.each, err = inRange(value); err != nil {
			err = fmt.Errorf("each: %w", err)
		}
	case "pin":
		post, ok := language.LiteralOf(value)
		if f.pin = post.S; !ok || post.Handle != "" || !rank.IsPost(post.S) {
			err = fmt.Errorf("pin is %q; it must be the AT URI of a post, with a DID", language.Brief(value))
		}
	case "seen":
		if f.hide, f.viewer = true, true; value != "hide" {
			err = fmt.Errorf("seen is %q; the only value is hide", language.Brief(value))
		}
	case "without":
		kind, path := map[string]*kinds.Kind{"dead": &f.dead, "replies": &f.replies}[value], map[string]string{"dead": "self", "replies": "reply.parent.uri"}[value]
		if kind == nil {
			return fmt.Errorf("without is %q; it must be dead or replies", language.Brief(value))
		}
		i := slices.IndexFunc(t.All, func(k kinds.Info) bool { return k.Source() == "app.bsky.feed.post:"+path })
		if i < 0 {
			return fmt.Errorf("without=%s needs an index of posts, which this one is not: start it with skein serve --posts", value)
		}
		*kind = t.All[i].Kind
	default:
		err = fmt.Errorf("%q is not an option of a feed; after the query, it takes each=, pin=, seen= and without=", language.Brief(option))
	}
	return err
}

// inRange reads a number of posts.
func inRange(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > maxPage {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", language.Brief(text), maxPage)
	}
	return n, nil
}

// parseSource reads a query.
func parseSource(words *language.Vocabulary, text string) (s source, err error) {
	e, err := words.ParseAlone(text, language.MaxExpr, time.Now())
	switch {
	case err != nil:
		return s, err
	case e.Type() != dict.URI && e.Root.Rank != nil:
		err = fmt.Errorf("its results are %s, but a feed shows posts; use via=likes or via=reposts", language.Plural(e.Type()))
	case e.Type() != dict.URI:
		err = fmt.Errorf("it is a set of %s, but a feed shows posts", language.Plural(e.Type()))
	}
	return source{text: text, ranked: e.Root.Rank != nil}, err
}

// nameViewer replaces $viewer by the viewer's DID.
func (f feed) nameViewer(list []language.Literal) {
	for i := range list {
		if list[i].Handle == language.ViewerName {
			list[i].Resolve(f.did)
		}
	}
}

// question returns the text that a cursor of the feed is bound to: the feed as it is for this viewer.
func (f feed) question() string {
	return "feed " + f.name + "\x00" + f.did + "\x00" + f.shows
}
