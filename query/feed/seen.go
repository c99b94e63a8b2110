package feed

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/zeebo/xxh3"

	"skein.blue/graph"
	"skein.blue/intern/dict"
	"skein.blue/internal/identities"
	"skein.blue/query/rank"
	"skein.blue/query/xrpc"
)

// The store keeps the posts that viewers have seen, in slots. A post is a mark of 32 bits of a hash, which depends on the viewer: with
// the marks of a slot, at most 8 days of 1,024, one unseen post in 500,000 is taken for seen.
//
// The payer for an account (identities.PayerOf) decides on its slot, with the store's secret: all accounts of a domain, which are free,
// share one. An attacker who wants to drive out the marks of others needs thousands of accounts of a directory that rations them.
const slots = 1 << 15 // 8 rows of up to 4 KiB each

// viewed is what a viewer has seen.
type viewed struct {
	slot  uint16
	seed  uint64
	marks map[uint32]bool
}

func today() uint32 { return uint32(time.Now().Unix() / 86400) }

func (v *viewed) mark(uri string) uint32 { return uint32(xxh3.HashStringSeed(uri, v.seed)) }

// has reports whether the viewer has seen a post.
func (v *viewed) has(uri string) bool { return v.marks != nil && v.marks[v.mark(uri)] }

// viewer returns where it is kept what a viewer has seen, which load reads.
func viewer(store *graph.Store, did string) viewed {
	secret := xxh3.Hash(store.Secret())
	return viewed{uint16(xxh3.HashStringSeed(identities.PayerOf(syntax.DID(did)), secret) % slots), xxh3.HashStringSeed(did, secret), nil}
}

func (v *viewed) load(ctx context.Context, store *graph.Store) error {
	marks, err := store.Seen(ctx, v.slot, today())
	v.marks = make(map[uint32]bool, len(marks))
	for _, m := range marks {
		v.marks[m] = true
	}
	return err
}

// interactions implements app.bsky.feed.sendInteractions. Posts that were seen are remembered if a feed hides them.
func (f *Feeds) interactions(ctx context.Context, q *xrpc.Query) (any, error) {
	if f == nil {
		return nil, errNone
	}
	var in struct {
		Interactions []struct{ Item, Event string }
	}
	if err := json.Unmarshal([]byte(q.Input), &in); err != nil || in.Interactions == nil {
		return nil, xrpc.Invalid(`the body must be JSON, {"interactions": [{"item": "at://…", "event": "…"}]}`)
	}
	did, err := q.Viewer()
	if err != nil {
		return nil, err
	}
	v, marks := viewer(q.Store, did), []uint32(nil)
	for _, i := range in.Interactions {
		if i.Event == Methods+"defs#interactionSeen" && rank.IsPost(i.Item) && dict.ValidURI(i.Item) {
			marks = append(marks, v.mark(i.Item))
		}
	}
	if marks != nil && slices.ContainsFunc(*f.feeds.Load(), func(g feed) bool { return g.hide }) {
		err = q.Store.AddSeen(ctx, v.slot, today(), marks)
	}
	return struct{}{}, err
}
