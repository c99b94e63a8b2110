package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
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

	blocks, items int // that may still be read
	bound         gap // a bound was reached
	missing       gap // records of a list's author may be missing
}

func newListBlocks(ctx context.Context, sn *ask.View, w *xrpc.Work) *listBlocks {
	return &listBlocks{Reader: algebra.NewReader(ctx, sn, w), blocks: maxListBlocks, items: maxListItems}
}

// note says in c what was not read, or may be missing.
func (l *listBlocks) note(c *caveats) {
	if l.bound != "" {
		_ = c.note(l.bound)
	} else if l.missing != "" && !c.Incomplete {
		_ = c.note(l.missing)
	}
}

// A blockedList is a list that an account blocks, and the listblock that is shown.
type blockedList struct {
	ask.ShownRecord

	author dict.ID
}

// A byList is called for each list item by which an account blocks another one. An account that
// occurs several times may come several times.
type byList func(blocker, other, list dict.ID, block *blockedList, item ask.Path)

// find finds the list items by which accounts block others.
func (l *listBlocks) find(blockers, others []dict.ID, found byList) error {
	if !slices.ContainsFunc(others, func(id dict.ID) bool { return id != dict.None }) {
		return nil
	}
	all, authors, err := l.blockedOf(blockers)
	if err != nil || authors.Empty() {
		return err
	}
	among := map[dict.ID]map[dict.ID]bool{} // the authors that list any of the others, and which
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
		listers, err := l.And(authors, t)
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
		err := l.listings(author, among[author], func(other, list dict.ID, item ask.Path) {
			for i, blocker := range blockers {
				if block := all[i][list]; block != nil && block.author == author {
					found(blocker, other, list, block, item)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listings calls each for the list items by which an author puts any of the accounts some on a
// list, in no particular order.
func (l *listBlocks) listings(author dict.ID, some map[dict.ID]bool, each func(member, list dict.ID, item ask.Path)) error {
	if err := l.Ended.Err(); err != nil {
		return err
	}
	among := func(id dict.ID) (bool, error) {
		if l.items--; l.items < 0 {
			return false, errListBound
		}
		return some[id], nil
	}
	err := l.View.JoinedAmong(author, kinds.ListMember, kinds.ListItem, among, ask.Window{}, func(item ask.Path, member, list dict.ID) error {
		each(member, list, item)
		return nil
	})
	if errors.Is(err, errListBound) {
		l.bound = gap(fmt.Sprintf("the blocked lists have more than %d items; not all were read, so blocks by lists may be missing", maxListItems))
		return nil
	}
	return err
}

// blockedOf reads the listblocks of accounts, for lists of visible authors, and returns them by account and list, with the
// authors.
func (l *listBlocks) blockedOf(ids []dict.ID) (all []map[dict.ID]*blockedList, of sets.Set, err error) {
	type block struct {
		by   int // the index of the account
		list dict.ID
		path ask.Path
	}
	var blocks []block
	for _, id := range ids {
		l.View.BeginRecords(listBlock.Kind, id)
	}
	for i, id := range ids {
		if l.blocks < 0 { // l.bound is set
			break
		}
		err := l.View.Records(listBlock.Kind, id, func(p ask.Path, list dict.ID) bool {
			if l.blocks--; l.blocks < 0 {
				l.bound = gap(fmt.Sprintf("these accounts block more than %d lists; not all were read, so blocks by lists may be missing", maxListBlocks))
				return false
			}
			p.Raw = slices.Clone(p.Raw)
			blocks = append(blocks, block{i, list, p})
			return true
		})
		if err != nil {
			return nil, of, err
		}
	}
	slices.SortFunc(blocks, func(x, y block) int { return cmp.Compare(x.list, y.list) })
	var lists []dict.ID
	for _, b := range blocks {
		lists = append(lists, b.list)
	}
	lists = slices.Compact(lists)
	authors, times, err := l.authorsOf(lists)
	if err != nil {
		return nil, of, err
	}
	var some sets.Collector
	all = make([]map[dict.ID]*blockedList, len(ids))
	for _, b := range blocks {
		i, _ := slices.BinarySearch(lists, b.list)
		if authors[i] == dict.None {
			continue
		}
		if all[b.by] == nil {
			all[b.by] = map[dict.ID]*blockedList{}
		}
		if all[b.by][b.list] == nil {
			all[b.by][b.list] = &blockedList{author: authors[i]}
		}
		all[b.by][b.list].Offer(b.path, times[i])
		some.Add(uint64(authors[i]))
	}
	return all, some.Set(), nil
}

// authorsOf returns the authors of lists, None for authors that are hidden or unknown, and the
// TIDs of the lists. It sets l.missing if records of an author may be missing.
func (l *listBlocks) authorsOf(lists []dict.ID) (authors []dict.ID, times []uint64, err error) {
	dids, times := make([]language.Literal, len(lists)), make([]uint64, len(lists))
	err = l.View.Strings(dict.URI, lists, func(i int, uri []byte) error {
		dids[i], times[i] = language.Literal{S: dict.AuthorityOf(string(uri)), Is: dict.DID}, ask.TIDOf(dict.URI, uri)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if authors, err = algebra.Lookup(l.View, dids); err != nil {
		return nil, nil, err
	}
	var by []language.Literal
	var ids []dict.ID
	asked := map[string]bool{}
	for i, author := range authors {
		isDID := strings.HasPrefix(dids[i].S, "did:") // a URI with a handle names no list: items name the author's DID
		if isDID && l.missing == "" && !asked[dids[i].S] {
			asked[dids[i].S] = true
			by, ids = append(by, dids[i]), append(ids, author)
		}
		if !isDID || l.View.IsHidden(author) {
			authors[i] = dict.None
		}
	}
	err = missingOf(l.View, by, ids)
	if g, ok := errors.AsType[gap](err); ok {
		l.missing, err = g, nil
	}
	return authors, times, err
}
