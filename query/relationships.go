package query

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// maxOthers is the largest number of others in one getRelationships, as in its lexicon.
const maxOthers = 30

// relationship is app.bsky.graph.defs#relationship, or #notFoundActor.
type relationship struct {
	Type       string `json:"$type"`
	DID        string `json:"did,omitempty"`
	Following  string `json:"following,omitempty"`
	FollowedBy string `json:"followedBy,omitempty"`
	Blocking   string `json:"blocking,omitempty"`
	BlockedBy  string `json:"blockedBy,omitempty"`
	// The listblock records of the account that blocks.
	BlockingByList string `json:"blockingByList,omitempty"`
	BlockedByList  string `json:"blockedByList,omitempty"`
	Actor          string `json:"actor,omitempty"`
	NotFound       bool   `json:"notFound,omitempty"`
}

// getRelationships is Bluesky's method for the relationships of one account to others. An unknown
// handle, or any handle if handles are not resolved, is an actor not found.
func getRelationships(ctx context.Context, q *call) (any, error) {
	if !q.Values.Has("actor") {
		return nil, xrpc.Invalid("parameter \"actor\" is missing")
	}
	others := q.Values["others"]
	if len(others) > maxOthers {
		return nil, xrpc.Invalid("parameter others occurs %d times; at most %d are allowed", len(others), maxOthers)
	}
	actor := q.Values.Get("actor")
	names := append([]string{actor}, others...)
	of := make([]language.Literal, len(names))
	for i, a := range names {
		a, which := language.Pasted(a), "others"
		if i == 0 {
			which = "actor"
		}
		l, ok := language.LiteralOf("@" + strings.TrimPrefix(a, "@"))
		if of[i] = l; !ok {
			return nil, xrpc.Invalid("%q (%s) is neither a DID nor a handle", language.Brief(a), which)
		}
		if why := of[i].Unusable(); why != "" {
			return nil, xrpc.Invalid("%q (%s): %s", language.Brief(a), which, why)
		}
		if err := q.Resolve(of[i:i+1], func(int) string { return which + ": " }); err != nil {
			if e, ok := errors.AsType[*xrpc.Error](err); !ok || e.Status != http.StatusBadRequest {
				return nil, err
			} else if i == 0 {
				return nil, xrpc.Errorf(e.Status, "ActorNotFound", "%s", e.Message)
			}
		}
	}
	out := struct {
		Actor         string         `json:"actor"`
		Relationships []relationship `json:"relationships"`
		caveats
	}{Actor: of[0].S, Relationships: make([]relationship, len(others))}
	err := q.View(ctx, func(sn *ask.View) (err error) {
		for i, other := range of[1:] { // clear what an earlier attempt filled in
			out.Relationships[i] = relationship{Type: "app.bsky.graph.defs#relationship", DID: other.S}
			if other.Handle != "" {
				out.Relationships[i] = relationship{Type: "app.bsky.graph.defs#notFoundActor", Actor: others[i], NotFound: true}
			}
		}
		out.caveats, err = q.relate(ctx, sn, of, out.Relationships)
		return err
	})
	return out, err
}

// relate fills in the relationships of the first account to the others; those whose handles were not found have none.
func (q *call) relate(ctx context.Context, sn *ask.View, of []language.Literal, relationships []relationship) (c caveats, err error) {
	ids, err := algebra.Lookup(sn, of)
	if err != nil {
		return c, err
	}
	var dids []language.Literal
	var known []dict.ID
	for i := range of {
		if of[i].Handle == "" {
			dids, known = append(dids, of[i]), append(known, ids[i])
		}
	}
	l := newListBlocks(ctx, sn, q.Work, ids, outward, inward)
	for _, w := range l.ways {
		l.beginBetween(followKind, w)
	}
	err = q.rests(sn, &c, func(cl *claim) error {
		return cl.own(dids, known, language.Window{}, followKind.Kind, blockKind.Kind, listBlock.Kind, kinds.ListItem, kinds.ListMember)
	})
	if ids = l.ids; err != nil || len(known) == 1 {
		return c, err
	}
	var following [2][]dict.ID
	for _, w := range l.ways {
		if following[w], err = l.edgesBetween(followKind, w); err != nil {
			return c, err
		}
	}
	blocks, err := l.between()
	if err != nil {
		return c, err
	}
	for _, w := range l.ways {
		follows, err := l.recordsBetween(followKind, following[w], w)
		if err != nil {
			return c, err
		}
		for i, other := range ids[1:] {
			r, did := &relationships[i], of[0].S
			follow, block, byList := &r.Following, &r.Blocking, &r.BlockingByList
			if w == inward {
				did = of[i+1].S
				follow, block, byList = &r.FollowedBy, &r.BlockedBy, &r.BlockedByList
			}
			if p, ok := follows[other]; ok {
				*follow = recordURI(did, followKind, p)
			}
			b := blocks[w][other]
			if b == nil {
				continue
			}
			if b.isDirect {
				*block = recordURI(did, blockKind, b.direct)
			}
			if p, ok := b.lowest.Path(); ok {
				*byList = recordURI(did, listBlock, p)
			}
		}
	}
	return c, l.note(q, &c)
}

var (
	followKind   = *kinds.ByName("follow")
	blockKind    = *kinds.ByName("block")
	listBlock    = *kinds.ByName("listblock")
	listItemKind = *kinds.ByName("listitem_list")
)

func recordURI(did string, k kinds.Info, p ask.Path) string {
	return "at://" + did + "/" + k.Collection + "/" + string(p.AppendRkey(nil))
}

// ends returns the actors and the subjects of edges between the account and the others.
func (l *listBlocks) ends(w way) (from, to []dict.ID) {
	if w == inward {
		return l.ids[1:], l.ids[:1]
	}
	return l.ids[:1], l.ids[1:]
}

// beginBetween begins the look-ups of edgesBetween.
func (l *listBlocks) beginBetween(k kinds.Info, w way) {
	from, to := l.ends(w)
	for _, actor := range from {
		for _, subject := range to {
			l.View.BeginEdge(k.Kind, actor, subject, ask.Window{})
		}
	}
}

// edgesBetween returns the others whom the account names by records, or who name it, and begins to read these records. It looks
// the edges up in reverse sets: usually there is none, and then no record is read.
func (l *listBlocks) edgesBetween(k kinds.Info, w way) (others []dict.ID, err error) {
	for _, other := range l.ids[1:] {
		actor, subject := l.ids[0], other
		if w == inward {
			actor, subject = subject, actor
		}
		has, err := l.View.HasEdge(k.Kind, actor, subject, ask.Window{})
		if err != nil {
			return nil, err
		}
		if has {
			others = append(others, other)
			l.View.BeginRecords(k.Kind, actor)
		}
	}
	return others, nil
}

// recordsBetween returns the records of the edges that edgesBetween found, by the other.
func (l *listBlocks) recordsBetween(k kinds.Info, others []dict.ID, w way) (records map[dict.ID]ask.Path, err error) {
	if len(others) == 0 {
		return nil, nil
	}
	records = map[dict.ID]ask.Path{}
	each := func(n int, p ask.Path) error {
		p.Raw = slices.Clone(p.Raw)
		records[others[n]] = p
		return nil
	}
	if w == inward {
		return records, l.View.RecordsTo(k.Kind, l.ids[0], ask.Timeless, ask.Window{}, others, each)
	}
	return records, l.View.RecordsFrom(k.Kind, l.ids[0], others, func(int) uint64 { return ask.Timeless }, ask.Window{}, each)
}
