package query

import (
	"context"
	"errors"
	"net/http"
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
			if i == 0 {
				return nil, xrpc.Errorf(http.StatusBadRequest, "ActorNotFound", "%v", err)
			}
			if e, ok := errors.AsType[*xrpc.Error](err); !ok || e.Status != http.StatusBadRequest {
				return nil, err
			}
		}
	}
	out := struct {
		Actor         string         `json:"actor"`
		Relationships []relationship `json:"relationships"`
		caveats
	}{Actor: of[0].S, Relationships: make([]relationship, len(others))}
	dids := of[:1:1]
	var places []int // indexes in out of dids[1:]
	for i, other := range of[1:] {
		if other.Handle == "" {
			dids, places = append(dids, other), append(places, i)
		}
	}
	err := q.View(ctx, func(sn *ask.View) (err error) {
		for i, other := range of[1:] { // clear what an earlier attempt filled in
			out.Relationships[i] = relationship{Type: "app.bsky.graph.defs#relationship", DID: other.S}
			if other.Handle != "" {
				out.Relationships[i] = relationship{Type: "app.bsky.graph.defs#notFoundActor", Actor: others[i], NotFound: true}
			}
		}
		out.caveats, err = q.relate(ctx, sn, dids, func(i int) *relationship { return &out.Relationships[places[i]] })
		return err
	})
	return out, err
}

// relate fills in the relationships of the first of dids to the others.
func (q *call) relate(ctx context.Context, sn *ask.View, dids []language.Literal, place func(i int) *relationship) (c caveats, err error) {
	ids, err := algebra.Lookup(sn, dids)
	if err != nil {
		return c, err
	}
	err = c.note(q.ownMissing(sn, dids, ids, followKind.Kind, blockKind.Kind, listBlock.Kind, kinds.ListItem, kinds.ListMember))
	if err != nil || ids[0] == dict.None || sn.IsHidden(ids[0]) {
		return c, err
	}
	for i := range ids {
		if sn.IsHidden(ids[i]) {
			ids[i] = dict.None
		}
	}
	actor, others := ids[:1], ids[1:]
	relations := []struct {
		kind    kinds.Info
		out, in func(*relationship) *string
	}{
		{followKind, func(r *relationship) *string { return &r.Following }, func(r *relationship) *string { return &r.FollowedBy }},
		{blockKind, func(r *relationship) *string { return &r.Blocking }, func(r *relationship) *string { return &r.BlockedBy }},
	}
	for _, rel := range relations {
		beginEdges(sn, rel.kind, actor, others)
		beginEdges(sn, rel.kind, others, actor)
	}
	for _, rel := range relations {
		err = edges(sn, rel.kind, actor, others, func(i int, p ask.Path) { *rel.out(place(i)) = recordURI(dids[0].S, rel.kind, p) })
		if err == nil {
			err = edges(sn, rel.kind, others, actor, func(i int, p ask.Path) { *rel.in(place(i)) = recordURI(dids[i+1].S, rel.kind, p) })
		}
		if err != nil {
			return c, err
		}
	}
	l := newListBlocks(ctx, sn, q.Work)
	blocking, blockedBy := lowest{}, lowest{}
	if err = l.find(actor, others, func(_, other, _ dict.ID, block *blockedList, _ ask.Path) { blocking.offer(other, block) }); err == nil {
		err = l.find(others, actor, func(other, _, _ dict.ID, block *blockedList, _ ask.Path) { blockedBy.offer(other, block) })
	}
	for i, other := range others {
		if p, ok := blocking[other].Path(); ok {
			place(i).BlockingByList = recordURI(dids[0].S, listBlock, p)
		}
		if p, ok := blockedBy[other].Path(); ok {
			place(i).BlockedByList = recordURI(dids[i+1].S, listBlock, p)
		}
	}
	l.note(&c)
	return c, err
}

// lowest has the listblock with the lowest key, by the account that is blocked, or that blocks.
type lowest map[dict.ID]*ask.ShownRecord

func (l lowest) offer(account dict.ID, block *blockedList) {
	if p, ok := block.Path(); ok {
		if l[account] == nil {
			l[account] = &ask.ShownRecord{}
		}
		l[account].Offer(p, ask.Timeless) // keeps the lowest key
	}
}

// kindNamed returns a built-in kind.
func kindNamed(name string) kinds.Info {
	k := kinds.ByName(name)
	if k == nil {
		panic("query: no kind " + name)
	}
	return *k
}

func recordURI(did string, k kinds.Info, p ask.Path) string {
	return "at://" + did + "/" + k.Collection + "/" + string(p.AppendRkey(nil))
}

// beginEdges begins the reads of edges.
func beginEdges(sn *ask.View, k kinds.Info, from, to []dict.ID) {
	for _, actor := range from {
		for _, subject := range to {
			sn.BeginEdge(k.Kind, actor, subject, ask.Window{})
		}
	}
}

// edges finds the records by which one account names others, or others name one: found is called with the place among the
// others. It looks the edges up in reverse sets first: usually there is none, and then no record is read.
func edges(sn *ask.View, k kinds.Info, from, to []dict.ID, found func(i int, p ask.Path)) error {
	var places []int
	var others []dict.ID
	i := 0
	for _, actor := range from {
		for _, subject := range to {
			has, err := sn.HasEdge(k.Kind, actor, subject)
			if err != nil {
				return err
			}
			if has && len(from) == 1 {
				places, others = append(places, i), append(others, subject)
			} else if has {
				places, others = append(places, i), append(others, actor)
			}
			i++
		}
	}
	if len(others) == 0 {
		return nil
	}
	each := func(n int, p ask.Path) error { found(places[n], p); return nil }
	if len(from) == 1 {
		return sn.RecordsFrom(k.Kind, from[0], others, ask.NoTime, ask.Window{}, each)
	}
	return sn.RecordsTo(k.Kind, to[0], ask.Timeless, ask.Window{}, others, each)
}
