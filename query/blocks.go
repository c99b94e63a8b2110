package query

import (
	"context"
	"maps"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// The directions of getBlocks, which are also the names of the sets that it pages through.
const (
	blocking  = "blocking"  // the accounts that the actor blocks
	blockedBy = "blockedBy" // the accounts that block the actor
)

const (
	maxBlocks = 100 // accounts in one answer of getBlocks
	// maxListsShown is the number of lists that an answer names for one account.
	maxListsShown = 20
)

// accountBlock says how an account blocks the actor, or is blocked by it.
type accountBlock struct {
	DID       string      `json:"did"`
	Record    string      `json:"record,omitempty"` // the block record, if it blocks directly
	Time      string      `json:"time,omitempty"`   // of Record
	Lists     []listMatch `json:"lists,omitempty"`
	MoreLists bool        `json:"moreLists,omitempty"` // than maxListsShown
}

// listMatch is a list through which one account blocks another.
type listMatch struct {
	List          string `json:"list"`
	ListBlock     string `json:"listBlock"` // the record of the account that blocks the list
	ListBlockTime string `json:"listBlockTime,omitempty"`
	ListItem      string `json:"listItem"` // the record that puts the other account on the list
	ListItemTime  string `json:"listItemTime,omitempty"`
}

// getBlocks returns the accounts that an account blocks, or that block it, with the records that do.
func getBlocks(ctx context.Context, q *call) (any, error) {
	actor, err := q.List("actor", 1, kinds.DID)
	if err != nil {
		return nil, err
	}
	direction := q.Values.Get("direction")
	if direction != blocking && direction != blockedBy {
		return nil, xrpc.Invalid("parameter direction is %q; it must be %s or %s", language.Brief(direction), blocking, blockedBy)
	}
	limit, err := q.Integer("limit", 1, maxBlocks, 50)
	if err != nil {
		return nil, err
	}
	var others []language.Literal
	if q.Values.Has("others") {
		if q.Values.Has("cursor") || q.Values.Has("limit") {
			return nil, xrpc.Invalid("others cannot be combined with limit or cursor: the answer is about each of the accounts in others")
		}
		if others, err = q.List("others", maxBlocks, kinds.DID); err != nil {
			return nil, err
		}
	}
	e, err := q.Words.Parse(direction+"("+actor[0].S+")", q.MaxExpr, time.Now())
	if err != nil {
		return nil, xrpc.Invalid("actor: %v", err)
	}
	at, err := q.place(e)
	if err != nil {
		return nil, err
	}
	out := struct {
		Actor  string         `json:"actor"`
		Total  *uint64        `json:"total,omitempty"` // without others
		Blocks []accountBlock `json:"blocks"`
		Cursor string         `json:"cursor,omitempty"`
		caveats
	}{Actor: actor[0].S}
	describe := func(sn *ask.View, dids []language.Literal, ids []dict.ID) (err error) {
		l := newListBlocks(ctx, sn, q.Work)
		out.Blocks, err = l.describe(direction, dids, ids)
		l.note(&out.caveats)
		return err
	}
	if others != nil {
		return &out, q.View(ctx, func(sn *ask.View) error {
			dids := slices.Concat(actor, others)
			ids, err := algebra.Lookup(sn, dids)
			if err != nil {
				return err
			}
			from, to := 0, 1 // the accounts whose records say it
			if direction == blockedBy {
				from, to = 1, len(dids)
			}
			out.caveats = caveats{}
			if err := out.note(q.ownMissing(sn, dids[from:to], ids[from:to], blockKind.Kind, listBlock.Kind, kinds.ListItem, kinds.ListMember)); err != nil {
				return err
			}
			return describe(sn, dids, ids)
		})
	}
	return &out, q.evaluate(ctx, at.e, &out.caveats, func(v *algebra.Evaluation) error {
		set, total, err := v.Result()
		if err != nil {
			return err
		}
		page, members, cursor, err := q.page(v, set, at, limit)
		if err != nil {
			return err
		}
		out.Total, out.Cursor = &total, cursor
		dids, ids := slices.Clone(actor), slices.Clone(v.IDs[:1])
		for i, m := range members {
			dids, ids = append(dids, language.Literal{S: m, Is: dict.DID}), append(ids, dict.ID(page[i]))
		}
		return describe(v.View, dids, ids)
	})
}

var (
	blockKind    = kindNamed("block")
	listItemKind = kindNamed("listitem_list")
)

// blockedLists has, for each account, the lists through which it blocks or is blocked.
type blockedLists map[dict.ID]map[dict.ID]*match

type match struct {
	block *blockedList
	item  ask.ShownRecord
}

// describe returns the blocks between the first of dids, the actor, and each of the others, in their
// order, without those between which there is none.
func (l *listBlocks) describe(direction string, dids []language.Literal, ids []dict.ID) ([]accountBlock, error) {
	blocks := []accountBlock{}
	if ids[0] == dict.None || direction == blocking && l.View.IsHidden(ids[0]) {
		return blocks, nil
	}
	for i, id := range ids[1:] {
		if l.View.IsHidden(id) {
			ids[i+1] = dict.None
		}
	}
	all := make([]accountBlock, len(ids)-1)
	blocker := func(int) string { return dids[0].S } // of all[i]
	blockers, blocked := ids[:1], ids[1:]
	if direction == blockedBy {
		blocker = func(i int) string { return dids[i+1].S }
		blockers, blocked = blocked, blockers
	}
	beginEdges(l.View, blockKind, blockers, blocked)
	err := edges(l.View, blockKind, blockers, blocked, func(i int, p ask.Path) {
		all[i].Record, all[i].Time = recordURI(blocker(i), blockKind, p), timeOf(p)
	})
	if err != nil {
		return nil, err
	}
	found, more := blockedLists{}, map[dict.ID]bool{}
	err = l.find(blockers, blocked, func(member, other, list dict.ID, block *blockedList, item ask.Path) {
		if direction == blocking {
			member = other
		}
		m := found[member][list]
		switch {
		case m != nil:
		case len(found[member]) == maxListsShown:
			more[member] = true
			return
		default:
			if found[member] == nil {
				found[member] = map[dict.ID]*match{}
			}
			m = &match{block: block}
			found[member][list] = m
		}
		m.item.Offer(item, ask.Timeless) // the subject is an account
	})
	if err != nil {
		return nil, err
	}
	names, err := l.names(found)
	if err != nil {
		return nil, err
	}
	for i, id := range ids[1:] {
		b := &all[i]
		if b.DID, b.MoreLists = dids[i+1].S, more[id]; id == dict.None {
			continue
		}
		b.Lists = listMatches(blocker(i), found[id], names)
		if b.Record != "" || len(b.Lists) > 0 {
			blocks = append(blocks, *b)
		}
	}
	return blocks, nil
}

// names returns the URIs of the lists in found.
func (l *listBlocks) names(found blockedLists) (map[dict.ID]string, error) {
	names := map[dict.ID]string{}
	for _, lists := range found {
		for list := range lists {
			names[list] = ""
		}
	}
	lists := slices.Sorted(maps.Keys(names))
	err := l.View.Strings(dict.URI, lists, func(i int, uri []byte) error { names[lists[i]] = string(uri); return nil })
	return names, err
}

// listMatches names the records of these lists, in the order of the lists' ids.
func listMatches(blocker string, found map[dict.ID]*match, names map[dict.ID]string) []listMatch {
	lists := slices.Sorted(maps.Keys(found))
	named := make([]listMatch, len(lists))
	for i, list := range lists {
		block, _ := found[list].block.Path()
		item, _ := found[list].item.Path()
		named[i] = listMatch{
			List:      names[list],
			ListBlock: recordURI(blocker, listBlock, block), ListBlockTime: timeOf(block),
			ListItem: recordURI(dict.AuthorityOf(names[list]), listItemKind, item), ListItemTime: timeOf(item),
		}
	}
	return named
}
