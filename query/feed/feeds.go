package feed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/rank"
	"skein.blue/query/xrpc"
)

// Options configure Feeds.
type Options struct {
	// Path is the file of feeds; its format is described in file.go.
	Path string
	// Service is the DID of the service that serves the feeds; their records name it.
	Service string
	// Publisher is the DID of the account that publishes the feeds (whose repo has their app.bsky.feed.generator records). "" means the
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
	o     Options
	feeds atomic.Pointer[[]feed]
}

// New reads the file of feeds.
func New(o Options) (*Feeds, error) {
	if o.Kinds == nil {
		o.Kinds = kinds.BuiltIn
	}
	f := &Feeds{o: o}
	if f.o.Publisher == "" {
		f.o.Publisher = o.Service
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
	feeds, err := parseFeeds(language.NewVocabulary(f.o.Kinds), string(b))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.o.Path, err)
	}
	f.feeds.Store(&feeds)
	return len(feeds), nil
}

// find returns the feed with a URI.
func (f *Feeds) find(uri string) (feed, bool) {
	for _, g := range *f.feeds.Load() {
		if f.uri(g) == uri {
			return g, true
		}
	}
	return feed{}, false
}

func (f *Feeds) uri(g feed) string {
	return "at://" + f.o.Publisher + "/app.bsky.feed.generator/" + g.name
}

// Skeleton is the NSID of the method that returns a page of a feed.
const Skeleton = "app.bsky.feed.getFeedSkeleton"

// Methods returns the methods that serve the feeds. Without feeds, f is nil, and they answer that
// this server has none.
func (f *Feeds) Methods() []xrpc.Method {
	all := []xrpc.Method{
		xrpc.Method{NSID: Skeleton, Serve: f.skeleton, Slow: true}.Described(),
		xrpc.Method{NSID: "app.bsky.feed.describeFeedGenerator", Serve: f.describe}.Described(),
	}
	if f != nil && f.o.Preview {
		all[0].Takes = append(all[0].Takes, previewParameter)
	} else {
		all[0].Off = map[string]string{previewParameter: "previews a feed, and previews are off here (skein serve --feed-preview): send a service auth token"}
	}
	return all
}

// errNone is the answer of a server without feeds.
var errNone = xrpc.Errorf(http.StatusNotImplemented, "MethodNotImplemented", "this server has no feeds (--feeds)")

type skeletonItem struct {
	Post string `json:"post"`
}

// skeleton implements app.bsky.feed.getFeedSkeleton.
func (f *Feeds) skeleton(ctx context.Context, q *xrpc.Query) (any, error) {
	if f == nil {
		return nil, errNone
	}
	g, ok := f.find(q.Values.Get("feed"))
	if !ok {
		return nil, xrpc.Errorf(http.StatusBadRequest, "UnknownFeed", "unknown feed %q", language.Brief(q.Values.Get("feed")))
	}
	limit := q.Integer("limit", 1, 100, 50)
	err := q.Err()
	if g.viewer && err == nil {
		g.did, err = f.viewerOf(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	at := place{micros: uint64(time.Now().UnixMicro())}
	if q.Values.Has("cursor") {
		if at, err = g.open(q.Cursors, q.Values.Get("cursor")); err != nil {
			return nil, err
		}
	}
	out := struct {
		Feed   []skeletonItem `json:"feed"`
		Cursor string         `json:"cursor,omitempty"`
	}{}
	posts, next, err := g.page(ctx, *q, at, limit)
	if err != nil {
		return nil, err
	}
	out.Feed = make([]skeletonItem, len(posts))
	for i, uri := range posts {
		out.Feed[i] = skeletonItem{uri}
	}
	if next != nil {
		out.Cursor = g.seal(q.Cursors, *next)
	}
	return out, nil
}

// place is the start of a page. A ranking changes between two pages, so its place has the posts that were shown: a page shows the
// first of the others. The posts of a set are sorted by their keys, which do not change, so its place is the last post of the
// previous page.
type place struct {
	micros uint64   // the time of the first page
	after  uint64   // set: the TID of the last post
	id     uint64   // set: the id of the last post
	shown  []uint64 // ranking: the ids of the posts on the pages before, ascending
}

// maxFeed is the largest number of posts in a ranked feed.
const maxFeed = 1000

// page returns a page of a feed, and the start of the next, nil after the last page.
func (f feed) page(ctx context.Context, q xrpc.Query, at place, limit int) (posts []string, next *place, err error) {
	now := time.UnixMicro(int64(at.micros))
	q.Values, q.Resolve = f.rank, f.resolve(q.Resolve)
	if f.set != "" {
		e, err := q.Words.Parse(f.set, language.MaxExpr, now)
		if err == nil {
			err = q.Resolve(e.Strings, func(int) string { return "feed " + f.name + ": " })
		}
		if err != nil {
			return nil, nil, err
		}
		err = q.View(ctx, func(sn *ask.View) (err error) {
			posts, next, err = newestPosts(ctx, sn, q.Work, e, at, limit)
			return err
		})
		return posts, next, err
	}
	r, err := rank.Read(&q, now)
	if err != nil {
		return nil, nil, err
	}
	if until := int64(at.micros); !r.Window.All() && r.Window.To > until { // without later records
		r.Window.To = until
	}
	r.Limit, r.Posts = maxFeed, true
	err = q.View(ctx, func(sn *ask.View) error {
		posts, next = []string{}, nil
		ranked, err := rank.Rank(ctx, sn, q.Work, r)
		if err != nil {
			return err
		}
		limit := min(limit, maxFeed-len(at.shown))
		r.Limit = len(at.shown) + limit + 1
		shown := slices.Clone(at.shown)
		_, err = ranked.Page(r, func(e *rank.Result, member string) {
			switch _, again := slices.BinarySearch(at.shown, e.ID); {
			case again:
			case len(posts) < limit:
				posts = append(posts, member)
				shown = append(shown, e.ID)
			case len(shown) < maxFeed:
				next = &place{micros: at.micros, shown: shown}
			}
		})
		slices.Sort(shown)
		return err
	})
	return posts, next, err
}

// postsRead is the largest set that newestPosts sorts.
const postsRead = 20_000

// errTooManyPosts is returned for a larger set.
var errTooManyPosts = errors.New("the feed's set is too large")

// newestPosts returns a page of the posts in a set, newest first.
func newestPosts(ctx context.Context, sn *ask.View, w *xrpc.Work, e *language.Expr, at place, limit int) (posts []string, next *place, err error) {
	v, err := algebra.NewEvaluation(ctx, sn, e, w)
	if err != nil {
		return nil, nil, err
	}
	set, _, err := v.Result()
	if err != nil {
		return nil, nil, err
	}
	if set.Len() > postsRead {
		return nil, nil, xrpc.Invalid("%v: it has %d members, and only sets up to %d can be sorted; limit it with since=", errTooManyPosts, set.Len(), postsRead)
	}
	all, _ := set.Page(0, postsRead, sets.Set{})
	order := algebra.NewestFirst(time.UnixMicro(int64(at.micros)))
	var found []algebra.MemberRecord // with the times of the posts themselves
	uris := map[dict.ID]string{}
	var known []dict.ID
	for _, id := range all {
		if dict.ID(id) < dict.FirstReserved {
			known = append(known, dict.ID(id))
		}
	}
	err = sn.Strings(dict.URI, known, func(i int, uri []byte) error {
		p := algebra.MemberRecord{ID: known[i], Path: ask.Path{TID: ask.TIDOf(dict.URI, uri)}}
		if rank.IsPost(string(uri)) && (at.id == 0 || order.Compare(p, algebra.MemberRecord{ID: dict.ID(at.id), Path: ask.Path{TID: at.after}}) > 0) {
			found = append(found, p)
			uris[p.ID] = string(uri)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(found, order.Compare)
	posts = []string{}
	for _, p := range found[:min(limit, len(found))] {
		posts = append(posts, uris[p.ID])
	}
	if len(found) > limit {
		last := found[limit-1]
		next = &place{micros: at.micros, after: last.Path.TID, id: uint64(last.ID)}
	}
	return posts, next, nil
}

// seal seals the start of the next page of a feed.
func (f feed) seal(c *xrpc.Cursors, p place) string {
	at, last := []uint64{p.micros, p.after, p.id}, uint64(0)
	for _, id := range p.shown {
		at, last = append(at, id-last), id // which take few bytes
	}
	return c.Seal(f.question(), nil, at...)
}

func (f feed) open(c *xrpc.Cursors, cursor string) (p place, err error) {
	at, _, err := c.Open(f.question(), cursor)
	if err != nil || len(at) < 3 {
		return p, xrpc.ErrCursor
	}
	p = place{micros: at[0], after: at[1], id: at[2]}
	last := uint64(0)
	for _, more := range at[3:] {
		last += more
		p.shown = append(p.shown, last)
	}
	return p, nil
}

// describe implements app.bsky.feed.describeFeedGenerator.
func (f *Feeds) describe(context.Context, *xrpc.Query) (any, error) {
	if f == nil {
		return nil, errNone
	}
	type item struct {
		URI string `json:"uri"`
	}
	out := struct {
		DID   string `json:"did"`
		Feeds []item `json:"feeds"`
	}{f.o.Service, []item{}}
	for _, g := range *f.feeds.Load() {
		out.Feeds = append(out.Feeds, item{f.uri(g)})
	}
	return out, nil
}
