package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/intern/dict"
	"skein.blue/query"
	"skein.blue/query/language"
)

// AroundMemory is the default memory budget for a part of the network, in bytes.
const AroundMemory = 96 << 20

// Around returns the part of the network around accounts and lists, which are named as in queries.
func (n *Network) Around(ctx context.Context, names []string, hops int, handles query.Handles) (*backfill.Around, error) {
	a := graph.Around{Hops: hops}
	for _, name := range names {
		l, ok := language.LiteralOf(name)
		if !ok { // a handle without the @
			l, ok = language.LiteralOf("@" + name)
		}
		switch {
		case !ok, l.Handle == language.ViewerName, l.Is == dict.URI && !strings.Contains(l.S, "/app.bsky.graph.list/"):
			return nil, UsageError("--around: %q is neither an account (@alice.example.com, or a DID) nor a list (at://ACCOUNT/app.bsky.graph.list/KEY, or its address at bsky.app)", name)
		case l.Handle != "":
			did, err := handles.Resolve(ctx, l.Handle)
			if err != nil {
				return nil, fmt.Errorf("--around %s: %w", name, err)
			}
			l.Resolve(did)
		}
		to := &a.Centers
		if l.Is == dict.URI {
			to = &a.Lists
		}
		if !slices.Contains(*to, l.S) {
			*to = append(*to, l.S)
		}
	}
	return backfill.NewAround(a), nil
}
