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

// listBlocks reads the listblocks and list items behind relationships.
type listBlocks struct {
	*algebra.Reader

	blocks, items int               // that may still be read
	bound         *evidence.Missing // a bound was reached
	authors       []dict.ID         // of the lists that were read
}

func newListBlocks(ctx context.Context, sn *ask.View, w *xrpc.Work) *listBlocks {
	return &listBlocks{Reader: algebra.NewReader(ctx, sn, w), blocks: maxListBlocks, items: maxListItems}
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
		of.Missing.Reason = of.Reason
		err = c.note(of.Missing)
	}
	return err
}

// A blockedList is a list that accounts block.
type blockedList struct {
	uri    string
	author dict.ID                      // None if it is hidden or unknown
	time   uint64                       // the list's TID
	blocks map[dict.ID]*ask.ShownRecord // the listblocks that are shown, by the account that blocks
}

// A byList is called for each list item by which an account blocks another one.
type byList func(blocker, other, list dict.ID, of *blockedList, item ask.Path)

// find finds the list items by which accounts block others.
func (l *listBlocks) find(blockers, others []dict.ID, found byList) error {
	if !slices.ContainsFunc(others, func(id dict.ID) bool { return id != dict.None }) {
		return nil
	}
	lists, err := l.blockedBy(blockers)
	if err != nil || len(lists) == 0 {
		return err
	}
	var authors sets.Collector
	for _, list := range lists {
		if list.author != dict.None {
			authors.Add(uint64(list.author))
		}
	}
	some, among := authors.Set(), map[dict.ID]map[dict.ID]bool{} // the authors that list any of the others, and which
	for _, other := range others {
		l.View.BeginActors(kinds.ListMember, other)
	}
	for _, other := range others {
		if other == dict.None {
			continue
		}
		t, err := l.OpenActors(kinds.ListMember, other)
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
			among[dict.ID(author)][other] = true
		}
	}
	begin := func(author dict.ID) { l.View.BeginRecords(kinds.ListMember, author) }
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
		err := l.View.JoinedAmong(author, kinds.ListMember, kinds.ListItem, listed, ask.Window{}, func(item ask.Path, other, id dict.ID) error {
			if list := lists[id]; list != nil && list.author == author {
				for blocker := range list.blocks {
					found(blocker, other, id, list, item)
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

// blockedBy reads the lists that accounts block. It sets l.missing if records of a list's author may be missing.
func (l *listBlocks) blockedBy(accounts []dict.ID) (map[dict.ID]*blockedList, error) {
	type block struct {
		by, list dict.ID
		path     ask.Path
	}
	var blocks []block
	lists := map[dict.ID]*blockedList{}
	for _, id := range accounts {
		l.View.BeginRecords(listBlock.Kind, id)
	}
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
	ids := slices.Sorted(maps.Keys(lists))
	err := l.View.Strings(dict.URI, ids, func(i int, uri []byte) error {
		list := lists[ids[i]]
		list.uri, list.time = string(uri), ask.TIDOf(dict.URI, uri)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		list := lists[b.list]
		if list.blocks[b.by] == nil {
			list.blocks[b.by] = &ask.ShownRecord{}
		}
		list.blocks[b.by].Offer(b.path, list.time)
	}
	err = l.View.Authors(ids, func(i int, author dict.ID, _ uint64) error {
		if author == dict.None { // a URI with a handle names no list: items name the author's DID
			return nil
		}
		if l.authors = append(l.authors, author); !l.View.IsHidden(author) {
			lists[ids[i]].author = author
		}
		return nil
	})
	return lists, err
}
