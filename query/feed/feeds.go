package feed

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/graph/kinds"
	"skein.blue/query/language"
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
}

// Feeds are feeds by configuration, served as app.bsky.feed.getFeedSkeleton.
type Feeds struct {
	o     Options
	feeds atomic.Pointer[[]feed]
}

// New reads the file of feeds.
func New(o Options) (*Feeds, error) {
	o.Kinds, o.Publisher = cmp.Or(o.Kinds, kinds.BuiltIn), cmp.Or(o.Publisher, o.Service)
	f := &Feeds{o: o}
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

// Methods is what the NSIDs of the methods of feeds begin with.
const Methods = "app.bsky.feed."

// Methods returns the methods that serve the feeds. Without feeds, f is nil, and they answer that
// this server has none.
func (f *Feeds) Methods() []xrpc.Method {
	return []xrpc.Method{
		{NSID: Methods + "getFeedSkeleton", Serve: f.skeleton, Slow: true, Takes: []string{lineParameter, viewerParameter}},
		{NSID: Methods + "describeFeedGenerator", Serve: f.describe},
		{NSID: Methods + "sendInteractions", Serve: f.interactions, Procedure: true},
	}
}

// errNone is the answer of a server without feeds.
var errNone = xrpc.Errorf(http.StatusNotImplemented, "MethodNotImplemented", "this server has no feeds (--feeds)")

// skeleton implements app.bsky.feed.getFeedSkeleton.
func (f *Feeds) skeleton(ctx context.Context, q *xrpc.Query) (any, error) {
	g, err := f.asked(q)
	limit := q.Integer("limit", 1, maxPage, 50)
	if err = cmp.Or(err, q.Err()); g.viewer && err == nil {
		g.did, err = g.viewerOf(q)
	}
	if err != nil {
		return nil, err
	}
	at, again := place{micros: uint64(time.Now().UnixMicro()), after: make([]candidate, len(g.sources))}, q.Values.Has("cursor")
	if again {
		if at, err = g.open(q.Cursors, q.Values.Get("cursor")); err != nil {
			return nil, err
		}
	}
	out := struct {
		Feed   []map[string]any `json:"feed"`
		Cursor string           `json:"cursor,omitempty"`
	}{Feed: []map[string]any{}}
	var seen viewed
	if g.hide && g.line > 0 { // the sender of a line may name anybody
		seen = viewer(q.Store, g.did)
		if err := seen.load(ctx, q.Store); err != nil {
			return nil, err
		}
	}
	posts, next, err := g.page(ctx, *q, at, limit, !again, seen)
	if err != nil {
		return nil, err
	}
	for _, uri := range posts {
		item := map[string]any{"post": uri}
		if uri == g.pin {
			item["reason"] = map[string]string{"$type": Methods + "defs#skeletonReasonPin"}
		}
		out.Feed = append(out.Feed, item)
	}
	if next != nil {
		out.Cursor = g.seal(q.Cursors, *next)
	}
	return out, nil
}

// describe implements app.bsky.feed.describeFeedGenerator.
func (f *Feeds) describe(context.Context, *xrpc.Query) (any, error) {
	if f == nil {
		return nil, errNone
	}
	feeds := []map[string]string{}
	for _, g := range *f.feeds.Load() {
		feeds = append(feeds, map[string]string{"uri": f.uri(g)})
	}
	return map[string]any{"did": f.o.Service, "feeds": feeds}, nil
}
