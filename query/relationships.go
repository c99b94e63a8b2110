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

// relations are the edges of a relationship, with their fields.
var relations = []struct {
	name    string // of the kind
	out, in func(*relationship) *string
}{
	{"follow", func(r *relationship) *string { return &r.Following }, func(r *relationship) *string { return &r.FollowedBy }},
	{"block", func(r *relationship) *string { return &r.Blocking }, func(r *relationship) *string { return &r.BlockedBy }},
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
		completeness
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
		out.completeness, err = q.relate(ctx, sn, dids, func(i int) *relationship { return &out.Relationships[places[i]] })
		return err
	})
	return out, err
}

// relate fills in the relationships of the first of dids to the others.
func (q *call) relate(ctx context.Context, sn *ask.View, dids []language.Literal, place func(i int) *relationship) (completeness, error) {
	ids, err := algebra.Lookup(sn, dids)
	if err != nil {
		return completeness{}, err
	}
	of := []kinds.Kind{listBlock.Kind, kinds.ListItem, kinds.ListMember}
	for _, rel := range relations {
		of = append(of, kindNamed(rel.name).Kind)
	}
	c, err := q.ownMissing(sn, dids, ids, of...)
	if err != nil || ids[0] == dict.None || sn.IsHidden(ids[0]) {
		return c, err
	}
	for i := range ids {
		if sn.IsHidden(ids[i]) {
			ids[i] = dict.None
		}
	}
	for _, rel := range relations {
		k := kindNamed(rel.name).Kind
		for _, other := range ids[1:] {
			sn.BeginEdge(k, ids[0], other, ask.Window{})
			sn.BeginEdge(k, other, ids[0], ask.Window{})
		}
	}
	for _, rel := range relations {
		k := kindNamed(rel.name)
		err := outward(sn, k, ids, func(i int, p ask.Path) { *rel.out(place(i)) = recordURI(dids[0].S, k, p.AppendRkey(nil)) })
		if err != nil {
			return c, err
		}
		err = inward(sn, k, ids, func(i int, p ask.Path) { *rel.in(place(i)) = recordURI(dids[i+1].S, k, p.AppendRkey(nil)) })
		if err != nil {
			return c, err
		}
	}
	bound, missing, err := relateByLists(ctx, sn, q.Work, dids, ids, place)
	switch {
	case bound.Incomplete:
		c = bound
	case !c.Incomplete:
		c = missing
	}
	return c, err
}

// ownMissing returns the completeness of the accounts' own records of some kinds.
func (x *index) ownMissing(sn *ask.View, dids []language.Literal, ids []dict.ID, of ...kinds.Kind) (c completeness, err error) {
	lacking, err := sn.Lacking()
	if err != nil {
		return c, err
	}
	if c = x.lacks(lacking, of...); c.Incomplete {
		return c, nil
	}
	beginAccounts(sn, ids)
	for i := range ids {
		if c, err = missingOf(sn, dids[i].S, ids[i]); err != nil || c.Incomplete {
			return c, err
		}
	}
	return c, nil
}

// kindNamed returns a built-in kind.
func kindNamed(name string) kinds.Info {
	k := kinds.ByName(name)
	if k == nil {
		panic("query: no kind " + name)
	}
	return *k
}

func recordURI(did string, k kinds.Info, rkey []byte) string {
	return "at://" + did + "/" + k.Collection + "/" + string(rkey)
}

// outward finds the records by which the first of ids names the others. It looks them up in the
// others' reverse sets first: usually there is none, and then no record is read.
func outward(sn *ask.View, k kinds.Info, ids []dict.ID, found func(i int, p ask.Path)) error {
	wanted, any := make([]dict.ID, len(ids)-1), false
	for _, other := range ids[1:] {
		sn.BeginEdge(k.Kind, ids[0], other, ask.Window{})
	}
	for i, other := range ids[1:] {
		has, err := sn.HasEdge(k.Kind, ids[0], other)
		if err != nil {
			return err
		}
		if has {
			wanted[i], any = other, true
		}
	}
	if !any {
		return nil
	}
	return sn.RecordsFrom(k.Kind, ids[0], wanted, ask.NoTime, ask.Window{}, func(i int, p ask.Path) error {
		found(i, p)
		return nil
	})
}

// inward finds the records by which the others name the first of ids.
func inward(sn *ask.View, k kinds.Info, ids []dict.ID, found func(i int, p ask.Path)) error {
	var places []int // indexes in ids[1:]
	var actors []dict.ID
	for _, other := range ids[1:] {
		sn.BeginEdge(k.Kind, other, ids[0], ask.Window{})
	}
	for i, other := range ids[1:] {
		has, err := sn.HasEdge(k.Kind, other, ids[0])
		if err != nil {
			return err
		}
		if has {
			places, actors = append(places, i), append(actors, other)
		}
	}
	return sn.RecordsTo(k.Kind, ids[0], ask.Timeless, ask.Window{}, actors, func(n int, p ask.Path) error {
		found(places[n], p)
		return nil
	})
}
