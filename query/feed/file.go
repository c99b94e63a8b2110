package feed

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/query/language"
	"skein.blue/query/rank"
	"skein.blue/query/xrpc"
)

// A file of feeds has one feed in each paragraph: its name, which is the key of its record
// (app.bsky.feed.generator), an equals sign, and a query. Lines that begin with a space continue
// the previous line; lines that begin with # are comments.
//
//	# liked by the accounts that I follow, and not by me
//	friends-like = rank(of=follows($viewer), via=likes, since=24h, except=likes($viewer))
//	# the newest posts that an account likes
//	liked-by-alice = likes(did:plc:…)
//
// rank takes the parameters of the method blue.skein.graph.rank. Anything else is a set
// expression of AT URIs, whose posts the feed shows, newest first. $viewer is the DID of the
// viewer.

// feed is a feed of the file.
type feed struct {
	name  string
	line  int
	shows string     // the query, as written in the file
	rank  url.Values // the parameters of a ranking
	set   string     // a set expression
	// viewer reports that $viewer occurs: the viewer must send a token.
	viewer bool
	did    string // of the viewer, for one request
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

// parse reads the query.
func (f *feed) parse(words *language.Vocabulary) error {
	asked, isRank, err := rank.Parse(f.shows)
	switch {
	case err != nil:
		return err
	case asked.Has("limit") || asked.Has("cursor"):
		return errors.New("a feed cannot set limit or cursor; the app that shows it does")
	case !isRank:
		f.set = f.shows
		e, err := words.Parse(f.set, language.MaxExpr, time.Now())
		if err == nil && e.Type() != dict.URI {
			err = fmt.Errorf("it is a set of %s, but a feed shows posts", language.Plural(e.Type()))
		}
		return err
	}
	f.rank = asked
	r, err := rank.Read(&xrpc.Query{Words: words, MaxExpr: language.MaxExpr, Values: f.rank, Resolve: func([]language.Literal, func(int) string) error { return nil }}, time.Now())
	if err == nil && r.Via.Is != dict.URI {
		err = fmt.Errorf("its results are %s, but a feed shows posts; use via=likes or via=reposts", language.Plural(r.Via.Is))
	}
	return err
}

// resolve replaces $viewer by the viewer's DID, and handles as next does.
func (f feed) resolve(next func([]language.Literal, func(int) string) error) func([]language.Literal, func(int) string) error {
	return func(list []language.Literal, where func(int) string) error {
		for i := range list {
			if list[i].Handle == language.ViewerName {
				list[i].Resolve(f.did)
			}
		}
		return next(list, where)
	}
}

// question returns the text that a cursor of the feed is bound to: its query for this viewer.
func (f feed) question() string {
	set, asked := f.set, f.rank
	if f.did != "" {
		set, asked = strings.ReplaceAll(set, language.ViewerName, f.did), url.Values{}
		for name, v := range f.rank {
			asked.Set(name, strings.ReplaceAll(v[0], language.ViewerName, f.did))
		}
	}
	return "feed " + f.name + "\x00" + set + "\x00" + asked.Encode()
}
