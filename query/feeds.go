package query

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/query/algebra"
)

// FeedOptions configure Feeds.
type FeedOptions struct {
	// Path is the file of feeds; its format is described in feedfile.go.
	Path string
	// Service serves the feeds: their records name its DID.
	Service *Service
	// Publisher is the DID of the account whose records announce the feeds. "" means the
	// service's DID.
	Publisher string
	// Kinds are the kinds that feeds may use; nil means the built-in ones.
	Kinds *kinds.Table
	// Preview lets a request name any viewer, without a token. It is for the author of the
	// feeds, on a server that only this machine reaches.
	Preview bool
}

// Feeds are feeds by configuration, served as app.bsky.feed.getFeedSkeleton.
type Feeds struct {
	o     FeedOptions
	feeds atomic.Pointer[[]feed]
}

// NewFeeds reads the file of feeds.
func NewFeeds(o FeedOptions) (*Feeds, error) {
	if o.Kinds == nil {
		o.Kinds = kinds.BuiltIn
	}
	f := &Feeds{o: o}
	if f.o.Publisher == "" {
		f.o.Publisher = o.Service.DID()
	}
	if _, err := syntax.ParseDID(f.o.Publisher); err != nil {
		return nil, fmt.Errorf("the publisher %q of the feeds is not a DID: %w", f.o.Publisher, err)
	}
	_, err := f.Reload()
	return f, err
}

// Reload reads the file again, and returns the number of feeds. After an error the previous
// feeds stay.
func (f *Feeds) Reload() (n int, err error) {
	b, err := os.ReadFile(f.o.Path)
	if err != nil {
		return 0, fmt.Errorf("reading the feeds: %w", err)
	}
	feeds, err := parseFeeds(algebra.NewVocabulary(f.o.Kinds), string(b))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.o.Path, err)
	}
	f.feeds.Store(&feeds)
	return len(feeds), nil
}

// find returns the feed with a URI.
func (f *Feeds) find(uri string) (feed, bool) {
	rest, ok := strings.CutPrefix(uri, "at://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || parts[0] != f.o.Publisher || parts[1] != "app.bsky.feed.generator" {
		return feed{}, false
	}
	feeds := *f.feeds.Load()
	i := slices.IndexFunc(feeds, func(g feed) bool { return g.name == parts[2] })
	if i < 0 {
		return feed{}, false
	}
	return feeds[i], true
}

func (f *Feeds) uri(g feed) string {
	return "at://" + f.o.Publisher + "/app.bsky.feed.generator/" + g.name
}

const getFeedSkeleton = "app.bsky.feed.getFeedSkeleton"

type skeletonItem struct {
	Post string `json:"post"`
}

// skeleton implements app.bsky.feed.getFeedSkeleton.
func (s *Server) skeleton(ctx context.Context, q params) (any, error) {
	if s.o.Feeds == nil {
		return nil, &Error{http.StatusNotImplemented, "MethodNotImplemented", "this server has no feeds (--feeds)"}
	}
	f, ok := s.o.Feeds.find(q.values.Get("feed"))
	if !ok {
		return nil, &Error{http.StatusBadRequest, "UnknownFeed", fmt.Sprintf("unknown feed %q", algebra.Brief(q.values.Get("feed")))}
	}
	limit, err := q.integer("limit", 1, 100, 50)
	if err != nil {
		return nil, err
	}
	if f.viewer {
		did, err := s.viewerOf(ctx, &q)
		if err != nil {
			return nil, err
		}
		f = f.forViewer(did)
	}
	place := feedPlace{micros: uint64(time.Now().UnixMicro())}
	if q.values.Has("cursor") {
		if place, err = s.cursors.openFeed(f, q.values.Get("cursor")); err != nil {
			return nil, invalid("%v", err)
		}
	}
	out := struct {
		Feed   []skeletonItem `json:"feed"`
		Cursor string         `json:"cursor,omitempty"`
	}{}
	posts, next, err := s.feedPage(ctx, q, f, place, limit)
	if err != nil {
		return nil, err
	}
	out.Feed = make([]skeletonItem, len(posts))
	for i, uri := range posts {
		out.Feed[i] = skeletonItem{uri}
	}
	if next != nil {
		out.Cursor = s.cursors.sealFeed(f, *next)
	}
	return out, nil
}

// feedPlace is the start of a page. In a ranking it is a number of results, as of the time of
// the first page; in a set it is the last post of the previous page.
type feedPlace struct {
	micros uint64 // the time of the first page
	after  uint64 // ranking: results before this page; set: the TID of the last post
	id     uint64 // set: the id of the last post
}

// maxFeed is the largest number of posts in a ranked feed.
const maxFeed = 1000

// feedPage returns a page of a feed, and the start of the next, nil after the last page.
func (s *Server) feedPage(ctx context.Context, q params, f feed, at feedPlace, limit int) (posts []string, next *feedPlace, err error) {
	now := time.UnixMicro(int64(at.micros))
	q.values = f.rank
	if f.set != "" {
		e, err := s.words.Parse(f.set, algebra.MaxExpr, now)
		if err == nil {
			err = q.resolve(e.Strings, func(int) string { return "feed " + f.name + ": " })
		}
		if err != nil {
			return nil, nil, err
		}
		err = s.view(ctx, q.work, func(sn *ask.View) (err error) {
			posts, next, err = s.newestPosts(ctx, sn, q.work, e, at, limit)
			return err
		})
		return posts, next, err
	}
	r, err := q.ranking(now)
	if err != nil {
		return nil, nil, err
	}
	if until := at.micros << 10; !r.window.All() && r.window.To > until { // without later records
		r.window.To = until
	}
	r.limit, r.posts = maxFeed, true
	err = s.view(ctx, q.work, func(sn *ask.View) error {
		posts, next = []string{}, nil
		ranked, err := s.ranked(ctx, sn, q.work, r)
		if err != nil {
			return err
		}
		skip, n := int(min(at.after, maxFeed)), 0
		r.limit = min(skip+limit+1, maxFeed)
		_, err = ranked.strings(r, func(_ *scored, member []byte) {
			n++
			switch {
			case n <= skip:
			case len(posts) < limit:
				posts = append(posts, string(member))
			default:
				next = &feedPlace{at.micros, uint64(skip + limit), 0}
			}
		})
		return err
	})
	return posts, next, err
}

// postsRead is the largest set that newestPosts sorts.
const postsRead = 20_000

// errTooManyPosts is returned for a larger set.
var errTooManyPosts = errors.New("the set of the feed is too large")

// newestPosts returns a page of the posts in a set, newest first.
func (s *Server) newestPosts(ctx context.Context, sn *ask.View, w *work, e *algebra.Expr, at feedPlace, limit int) (posts []string, next *feedPlace, err error) {
	v, err := algebra.NewEvaluation(ctx, sn, e, w)
	if err != nil {
		return nil, nil, err
	}
	set, _, err := v.Result()
	if err != nil {
		return nil, nil, err
	}
	if set.Len() > postsRead {
		return nil, nil, invalid("%v: it has %d members, and only sets up to %d can be sorted; limit it with since=", errTooManyPosts, set.Len(), postsRead)
	}
	all, _ := set.Page(0, postsRead, idset.Set{})
	type post struct{ tid, id uint64 }
	var found []post
	uris := map[uint64]string{}
	var known []dict.ID
	for _, id := range all {
		if dict.ID(id) < dict.FirstReserved {
			known = append(known, dict.ID(id))
		}
	}
	err = sn.Strings(dict.URI, known, func(i int, uri []byte) error {
		if tid := algebra.TIDOf(dict.URI, uri); isPost(uri) && (at.after == 0 && at.id == 0 || tid < at.after || tid == at.after && uint64(known[i]) > at.id) {
			found = append(found, post{tid, uint64(known[i])})
			uris[uint64(known[i])] = string(uri)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(found, func(x, y post) int { return cmp.Or(cmp.Compare(y.tid, x.tid), cmp.Compare(x.id, y.id)) })
	posts = []string{}
	for _, p := range found[:min(limit, len(found))] {
		posts = append(posts, uris[p.id])
	}
	if len(found) > limit {
		next = &feedPlace{at.micros, found[limit-1].tid, found[limit-1].id}
	}
	return posts, next, nil
}

// isPost reports whether a URI names a post.
func isPost(uri []byte) bool {
	parts := strings.Split(string(uri), "/")
	return len(parts) == 5 && parts[3] == "app.bsky.feed.post"
}

func (f feed) question() string { return "feed " + f.name + "\x00" + f.set + "\x00" + f.rank.Encode() }

// sealFeed seals the start of the next page of a feed.
func (c *cursors) sealFeed(f feed, p feedPlace) string {
	plain := binary.BigEndian.AppendUint64(nil, p.micros)
	plain = binary.BigEndian.AppendUint64(plain, p.after)
	return c.sealBytes(binary.BigEndian.AppendUint64(plain, p.id), f.question())
}

func (c *cursors) openFeed(f feed, cursor string) (p feedPlace, err error) {
	plain, err := c.openBytes(cursor, f.question())
	if err != nil || len(plain) != 24 {
		return p, errCursor
	}
	return feedPlace{binary.BigEndian.Uint64(plain), binary.BigEndian.Uint64(plain[8:]), binary.BigEndian.Uint64(plain[16:])}, nil
}

// describeFeeds implements app.bsky.feed.describeFeedGenerator.
func (s *Server) describeFeeds(context.Context, params) (any, error) {
	if s.o.Feeds == nil {
		return nil, &Error{http.StatusNotImplemented, "MethodNotImplemented", "this server has no feeds (--feeds)"}
	}
	type item struct {
		URI string `json:"uri"`
	}
	out := struct {
		DID   string `json:"did"`
		Feeds []item `json:"feeds"`
	}{s.o.Feeds.o.Service.DID(), []item{}}
	for _, f := range *s.o.Feeds.feeds.Load() {
		out.Feeds = append(out.Feeds, item{s.o.Feeds.uri(f)})
	}
	return out, nil
}
