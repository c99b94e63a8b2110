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
		return errors.Join(err, l.note(q, &out.caveats))
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
			err = q.rests(sn, &out.caveats, func(cl *claim) error {
				return cl.own(dids[from:to], ids[from:to], language.Window{}, blockKind.Kind, listBlock.Kind, kinds.ListItem, kinds.ListMember)
			})
			if err != nil {
				return err
			}
			return describe(sn, dids, ids)
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
		return describe(v.View, dids, ids)
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

// between returns how the first of ids blocks the others, or the others block the first, by the other. The look-ups of direct
// blocks have been begun.
func (l *listBlocks) between(ids []dict.ID, inward bool) (map[dict.ID]*block, error) {
	direct, err := recordsBetween(l.View, blockKind, ids, inward)
	if err != nil {
		return nil, err
	}
	all := map[dict.ID]*block{}
	for other, p := range direct {
		all[other] = &block{direct: p, isDirect: true}
	}
	blockers, blocked := ends(ids, inward)
	err = l.find(blockers, blocked, func(other, blocked, id dict.ID, list *blockedList, item ask.Path) {
		shown := list.blocks[other]
		if !inward {
			other = blocked
		}
		if all[other] == nil {
			all[other] = &block{}
		}
		b := all[other]
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
	return all, err
}

// describe returns the blocks between the first of dids, the actor, and each of the others, in their
// order, without those between which there is none.
func (l *listBlocks) describe(direction string, dids []language.Literal, ids []dict.ID) ([]accountBlock, error) {
	described := []accountBlock{}
	if ids[0] == dict.None || direction == blocking && l.View.IsHidden(ids[0]) {
		return described, nil
	}
	for i, id := range ids[1:] {
		if l.View.IsHidden(id) {
			ids[i+1] = dict.None
		}
	}
	inward := direction == blockedBy
	beginBetween(l.View, blockKind, ids, inward)
	all, err := l.between(ids, inward)
	if err != nil {
		return nil, err
	}
	for i, id := range ids[1:] {
		b, blocker := all[id], dids[0].S
		if b == nil || id == dict.None {
			continue
		}
		if inward {
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
