package query

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
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

// blocksAnswer is an answer of getBlocks.
type blocksAnswer struct {
	Actor  string         `json:"actor"`
	Total  *uint64        `json:"total,omitempty"` // without others
	Blocks []accountBlock `json:"blocks"`
	Cursor string         `json:"cursor,omitempty"`
	caveats
}

// A blockRow is a block record, or a list through which an account blocks another.
type blockRow struct {
	DID           string `json:"did"`
	Record        string `json:"record,omitempty"`
	Time          string `json:"time,omitempty"`
	List          string `json:"list,omitempty"`
	ListBlock     string `json:"listBlock,omitempty"`
	ListBlockTime string `json:"listBlockTime,omitempty"`
	ListItem      string `json:"listItem,omitempty"`
	ListItemTime  string `json:"listItemTime,omitempty"`
	MoreLists     string `json:"moreLists,omitempty"` // true: some are left out
}

func (a *blocksAnswer) table() *table {
	var rows []blockRow
	for _, b := range a.Blocks {
		if b.Record != "" {
			rows = append(rows, blockRow{DID: b.DID, Record: b.Record, Time: b.Time})
		}
		for _, l := range b.Lists {
			rows = append(rows, blockRow{b.DID, "", "", l.List, l.ListBlock, l.ListBlockTime, l.ListItem, l.ListItemTime, map[bool]string{true: "true"}[b.MoreLists]})
		}
	}
	var total any
	if a.Total != nil {
		total = *a.Total
	}
	return tableOf(rows, a.Cursor, total)
}

// getBlocks returns the accounts that an account blocks, or that block it, with the records that do.
func getBlocks(ctx context.Context, q *call) (any, error) {
	actor, err := q.List("actor", 1, kinds.DID)
	if err != nil {
		return nil, err
	}
	direction := q.Values.Get("direction")
	w, ok := map[string]way{blocking: outward, blockedBy: inward}[direction]
	if !ok {
		return nil, xrpc.Invalid("parameter direction is %q; it must be %s or %s", language.Brief(direction), blocking, blockedBy)
	}
	limit := q.Integer("limit", 1, maxBlocks, 50)
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
	at, err := q.place(e, byID)
	if err != nil {
		return nil, err
	}
	out := blocksAnswer{Actor: actor[0].S}
	reader := func(sn *ask.View, ids []dict.ID) *listBlocks {
		return newListBlocks(ctx, sn, q.Work, ids, w)
	}
	describe := func(l *listBlocks, dids []language.Literal) (err error) {
		out.Blocks, err = l.describe(dids)
		return errors.Join(err, l.note(q, &out.caveats))
	}
	if others != nil {
		return &out, q.View(ctx, func(sn *ask.View) error {
			dids := slices.Concat(actor, others)
			ids, err := algebra.Lookup(sn, dids)
			if err != nil {
				return err
			}
			l := reader(sn, ids)
			from, to := 0, 1 // the accounts whose records say it
			if w == inward {
				from, to = 1, len(dids)
			}
			err = q.rests(sn, &out.caveats, func(cl *claim) error {
				cl.lacks(cl.index.Statuses()) // of the others
				return cl.own(dids[from:to], ids[from:to], language.Window{}, blockKind.Kind, listBlock.Kind, kinds.ListItem, kinds.ListMember)
			})
			if err != nil {
				return err
			}
			return describe(l, dids)
		})
	}
	return &out, q.evaluate(ctx, at.e, evidence.Of(&at.e.Root), &out.caveats, func(v *algebra.Evaluation) error {
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
		l := reader(v.View, ids)
		if part := v.Sampled(); part != "" {
			l.bound = &evidence.Missing{Reason: "some blocks by lists are missing, also from the total: " + part}
		}
		return describe(l, dids)
	})
}

// A block is how one account blocks another.
type block struct {
	direct   ask.Path // the block record
	isDirect bool
	lists    map[dict.ID]*match // up to maxListsShown of the lists through which it blocks
	more     bool               // than maxListsShown
	lowest   ask.ShownRecord    // of the listblocks of all lists, the one with the lowest key
}

type match struct {
	list  *blockedList
	block *ask.ShownRecord
	item  ask.ShownRecord
}

// between returns how the account blocks the others, and how they block it, by the way and the other.
func (l *listBlocks) between() (all [2]map[dict.ID]*block, err error) {
	all = [2]map[dict.ID]*block{{}, {}}
	at := func(w way, other dict.ID) *block {
		if all[w][other] == nil {
			all[w][other] = &block{}
		}
		return all[w][other]
	}
	var direct [2][]dict.ID
	for _, w := range l.ways {
		if direct[w], err = l.edgesBetween(blockKind, w); err != nil {
			return all, err
		}
	}
	err = l.find(func(w way, other, id dict.ID, list *blockedList, shown *ask.ShownRecord, item ask.Path) {
		b := at(w, other)
		if p, ok := shown.Path(); ok {
			b.lowest.Offer(p, ask.Timeless) // keeps the lowest key
		}
		m := b.lists[id]
		switch {
		case m != nil:
		case len(b.lists) == maxListsShown:
			b.more = true
			return
		default:
			if b.lists == nil {
				b.lists = map[dict.ID]*match{}
			}
			m = &match{list: list, block: shown}
			b.lists[id] = m
		}
		m.item.Offer(item, ask.Timeless) // the subject is an account
	})
	for _, w := range l.ways {
		records, failed := l.recordsBetween(blockKind, direct[w], w)
		for other, p := range records {
			b := at(w, other)
			b.direct, b.isDirect = p, true
		}
		err = errors.Join(err, failed)
	}
	return all, err
}

// describe returns the blocks of a direction between the first of dids, the actor, and each of the others, in their
// order, without those between which there is none.
func (l *listBlocks) describe(dids []language.Literal) ([]accountBlock, error) {
	described, w := []accountBlock{}, l.ways[0]
	all, err := l.between()
	if err == nil {
		err = l.name(all[w])
	}
	if err != nil {
		return nil, err
	}
	for i, id := range l.ids[1:] {
		b, blocker := all[w][id], dids[0].S
		if b == nil || id == dict.None {
			continue
		}
		if w == inward {
			blocker = dids[i+1].S
		}
		one := accountBlock{DID: dids[i+1].S, Lists: listMatches(blocker, b.lists), MoreLists: b.more}
		if b.isDirect {
			one.Record, one.Time = recordURI(blocker, blockKind, b.direct), timeOf(b.direct)
		}
		described = append(described, one)
	}
	return described, nil
}

// listMatches names the records of these lists, in the order of the lists' ids.
func listMatches(blocker string, found map[dict.ID]*match) []listMatch {
	lists := slices.Sorted(maps.Keys(found))
	named := make([]listMatch, len(lists))
	for i, id := range lists {
		m := found[id]
		block, _ := m.block.Path()
		item, _ := m.item.Path()
		named[i] = listMatch{
			List:      m.list.uri,
			ListBlock: recordURI(blocker, listBlock, block), ListBlockTime: timeOf(block),
			ListItem: recordURI(dict.AuthorityOf(m.list.uri), listItemKind, item), ListItemTime: timeOf(item),
		}
	}
	return named
}
