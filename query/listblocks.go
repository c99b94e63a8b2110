package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// Blocks by lists: an account blocks a list (app.bsky.graph.listblock), and the list's author has
// put another account on it. getRelationships names the listblock record, as in
// app.bsky.graph.defs#relationship; if several blocked lists contain the other account, the one
// with the lowest key. getBlocks names the lists and both records.

// Bounds of one getRelationships or getBlocks: the listblocks and the list items that it reads, for all its
// accounts together. Beyond them the answer is incomplete.
const (
	maxListBlocks = 20_000
	maxListItems  = 1_000_000
)

// errListBound ends the reading of lists at a bound.
var errListBound = errors.New("query: more lists than one query may read")

// A way is a direction of follows and blocks.
type way int

const (
	outward way = iota // by the account
	inward             // by the others
)

// listBlocks reads the blocks between an account and others, with the listblocks and list items behind them.
type listBlocks struct {
	*algebra.Reader

	ids  []dict.ID // the account, then the others; None for hidden ones, and for all if nobody is left on a side
	ways []way     // to read

	blocks, items int               // that may still be read
	bound         *evidence.Missing // a bound was reached
	authors       []dict.ID         // of the lists that were read
}

// newListBlocks begins the first reads of between.
func newListBlocks(ctx context.Context, sn *ask.View, w *xrpc.Work, ids []dict.ID, ways ...way) *listBlocks {
	l := &listBlocks{Reader: algebra.NewReader(ctx, sn, w), ids: slices.Clone(ids), ways: ways, blocks: maxListBlocks, items: maxListItems}
	hidden := 0
	for i, id := range ids {
		if sn.IsHidden(id) && (i > 0 || ways[0] == outward) { // others may block a hidden account
			if l.ids[i] = dict.None; i == 0 {
				hidden = len(ids)
			}
			hidden++
		}
	}
	if hidden >= len(ids)-1 {
		clear(l.ids)
	}
	for _, w := range ways {
		l.beginBetween(blockKind, w)
		blockers, _ := l.ends(w)
		for _, id := range blockers {
			sn.BeginRecords(listBlock.Kind, id)
		}
	}
	return l
}

// note says in c what was not read, or is missing of the authors of lists.
func (l *listBlocks) note(q *call, c *caveats) error {
	if l.bound != nil {
		c.Incomplete = false // this reason says more
		return c.note(l.bound)
	}
	var of caveats
	err := q.rests(l.View, &of, func(cl *claim) error {
		return cl.own(make([]language.Literal, len(l.authors)), l.authors, language.Window{}, kinds.ListItem, kinds.ListMember)
	})
	if of.Incomplete {
		err = c.note(of.Missing)
	}
	return err
}

// A blockedList is a list that accounts block.
type blockedList struct {
	uri    string                       // once name has read it
	author dict.ID                      // None if it is hidden or unknown
	blocks map[dict.ID]*ask.ShownRecord // the listblocks that are shown, by the account that blocks
}

// A byList is called for each list item by which the account blocks another one, or the other one blocks it, with the listblock.
type byList func(w way, other, list dict.ID, of *blockedList, block *ask.ShownRecord, item ask.Path)

// find finds the list items by which the account blocks the others, and by which they block it.
func (l *listBlocks) find(found byList) error {
	var blockers, listed []dict.ID
	for _, w := range l.ways {
		from, to := l.ends(w)
		blockers, listed = append(blockers, from...), append(listed, to...)
	}
	lists, err := l.blockedBy(blockers, listed)
	if err != nil || len(lists) == 0 {
		return err
	}
	var authors sets.Collector
	for _, list := range lists {
		if list.author != dict.None {
			authors.Add(uint64(list.author))
		}
	}
	some, among := authors.Set(), map[dict.ID]map[dict.ID]bool{} // the authors that list any of the accounts, and which
	for _, id := range listed {
		if id == dict.None {
			continue
		}
		t, err := l.OpenActors(kinds.ListMember, id)
		if err != nil {
			return err
		}
		listers, err := l.And(some, t)
		if err != nil {
			return err
		}
		for author := range listers.All() {
			if among[dict.ID(author)] == nil {
				among[dict.ID(author)] = map[dict.ID]bool{}
			}
			among[dict.ID(author)][id] = true
		}
	}
	begin := func(author dict.ID) {
		l.View.BeginRecords(kinds.ListMember, author)
		l.View.BeginRecords(kinds.ListItem, author)
	}
	for author := range ask.Ahead(l.View, slices.Values(slices.Sorted(maps.Keys(among))), begin) {
		if err := l.Ended.Err(); err != nil {
			return err
		}
		listed := func(id dict.ID) (bool, error) {
			if l.items--; l.items < 0 {
				return false, errListBound
			}
			return among[author][id], nil
		}
		err := l.View.JoinedAmong(author, kinds.ListMember, kinds.ListItem, listed, ask.Window{}, func(item ask.Path, listed, id dict.ID) error {
			if list := lists[id]; list != nil && list.author == author {
				for blocker, block := range list.blocks {
					for _, w := range l.ways {
						pair := [2]dict.ID{blocker, listed}
						if w == inward {
							slices.Reverse(pair[:])
						}
						if pair[0] == l.ids[0] && slices.Contains(l.ids[1:], pair[1]) {
							found(w, pair[1], id, list, block, item)
						}
					}
				}
			}
			return nil
		})
		if errors.Is(err, errListBound) {
			l.bound = &evidence.Missing{Reason: fmt.Sprintf("the blocked lists have more than %d items; not all were read, so blocks by lists may be missing", maxListItems)}
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// blockedBy reads the lists that accounts block. If there are any, it begins to read who has put others on lists.
func (l *listBlocks) blockedBy(accounts, listed []dict.ID) (map[dict.ID]*blockedList, error) {
	type block struct {
		by, list dict.ID
		path     ask.Path
	}
	var blocks []block
	lists := map[dict.ID]*blockedList{}
	for _, id := range accounts {
		if l.blocks < 0 { // l.bound is set
			break
		}
		err := l.View.Records(listBlock.Kind, id, func(p ask.Path, list dict.ID) bool {
			if l.blocks--; l.blocks < 0 {
				l.bound = &evidence.Missing{Reason: fmt.Sprintf("these accounts block more than %d lists; not all were read, so blocks by lists may be missing", maxListBlocks)}
				return false
			}
			p.Raw = slices.Clone(p.Raw)
			blocks, lists[list] = append(blocks, block{id, list, p}), &blockedList{blocks: map[dict.ID]*ask.ShownRecord{}}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	ids, times := slices.Sorted(maps.Keys(lists)), map[dict.ID]uint64{}
	for _, id := range listed {
		if len(ids) > 0 {
			l.View.BeginActors(kinds.ListMember, id)
		}
	}
	l.View.BeginStrings(dict.URI, ids...) // name needs some
	err := l.View.Authors(ids, func(i int, author dict.ID, tid uint64) error {
		if times[ids[i]] = tid; tid >= ask.EndOfTime {
			times[ids[i]] = ask.Timeless
		}
		if author == dict.None { // a URI with a handle names no list: items name the author's DID
			return nil
		}
		l.View.BeginAccount(author)
		if l.authors = append(l.authors, author); !l.View.IsHidden(author) {
			lists[ids[i]].author = author
		}
		return nil
	})
	for _, b := range blocks {
		if list := lists[b.list]; list.blocks[b.by] == nil {
			list.blocks[b.by] = &ask.ShownRecord{}
		}
		lists[b.list].blocks[b.by].Offer(b.path, times[b.list])
	}
	return lists, err
}

// name reads the URIs of the lists of blocks.
func (l *listBlocks) name(blocks map[dict.ID]*block) error {
	lists := map[dict.ID]*blockedList{}
	for _, b := range blocks {
		for id, m := range b.lists {
			lists[id] = m.list
		}
	}
	ids := slices.Sorted(maps.Keys(lists))
	return l.View.Strings(dict.URI, ids, func(i int, uri []byte) error { lists[ids[i]].uri = string(uri); return nil })
}
