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

var listBlock = kindNamed("listblock")

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

	blocks, items int          // that may still be read
	bound         completeness // a bound was reached
	missing       completeness // records of a list's author may be missing
}

// blocked has the listblock records of an account, by the list's author and the list.
type blocked map[dict.ID]map[dict.ID]*ask.ShownRecord

// authors returns the authors of the lists.
func (b blocked) authors() sets.Set {
	var ids []uint64
	for author := range b {
		ids = append(ids, uint64(author))
	}
	return sets.FromUnsorted(ids)
}

// relateByLists adds the blocks by lists between the first of dids and the others. It returns
// whether a bound was reached, and whether records may be missing.
func relateByLists(ctx context.Context, sn *ask.View, w *xrpc.Work, dids []language.Literal, ids []dict.ID, place func(i int) *relationship) (bound, missing completeness, err error) {
	l := &listBlocks{Reader: algebra.NewReader(ctx, sn, w), blocks: maxListBlocks, items: maxListItems}
	out, in := map[dict.ID]*ask.ShownRecord{}, map[dict.ID]*ask.ShownRecord{}
	err = l.blocking(ids, func(member, _ dict.ID, block *ask.ShownRecord, _ ask.Path) { offer(out, member, block) })
	if err == nil {
		err = l.blockedBy(ids, func(member, _ dict.ID, block *ask.ShownRecord, _ ask.Path) { offer(in, member, block) })
	}
	for i, other := range ids[1:] {
		if p, ok := out[other].Path(); ok {
			place(i).BlockingByList = recordURI(dids[0].S, listBlock, p.AppendRkey(nil))
		}
		if p, ok := in[other].Path(); ok {
			place(i).BlockedByList = recordURI(dids[i+1].S, listBlock, p.AppendRkey(nil))
		}
	}
	return l.bound, l.missing, err
}

// A byList is called for each list item by which an account blocks another: with the other of the two
// accounts than the first of ids, the list, the shown listblock record and the list item. An account
// that occurs several times may come several times.
type byList func(member, list dict.ID, block *ask.ShownRecord, item ask.Path)

// blocking finds the others that the first of ids blocks.
func (l *listBlocks) blocking(ids []dict.ID, found byList) error {
	if !slices.ContainsFunc(ids[1:], func(id dict.ID) bool { return id != dict.None }) {
		return nil
	}
	all, err := l.blockedOf(ids[:1])
	if err != nil || len(all[0]) == 0 {
		return err
	}
	blocked := all[0]
	authors, among := blocked.authors(), map[dict.ID]map[dict.ID]bool{} // the authors that list any of the others, and which
	for _, other := range ids[1:] {
		l.View.BeginActors(kinds.ListMember, other)
	}
	for _, other := range ids[1:] {
		listers, err := l.listersOf(other, authors)
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
		err := l.listings(author, among[author], func(member, list dict.ID, item ask.Path) {
			if block := blocked[author][list]; block != nil {
				found(member, list, block, item)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// blockedBy finds the others that block the first of ids.
func (l *listBlocks) blockedBy(ids []dict.ID, found byList) error {
	type listing struct {
		list dict.ID
		item ask.Path
	}
	on := map[dict.ID][]listing{} // the lists that the first is on, by author
	all, err := l.blockedOf(ids[1:])
	if err != nil {
		return err
	}
	var authors sets.Collector
	for _, blocked := range all {
		for id := range blocked.authors().All() {
			authors.Add(id)
		}
	}
	listed, err := l.listersOf(ids[0], authors.Set())
	if err != nil {
		return err
	}
	for author := range listed.All() {
		l.View.BeginRecords(kinds.ListMember, dict.ID(author))
	}
	for i, other := range ids[1:] {
		blocked := all[i]
		listers := sets.And(blocked.authors(), listed)
		for id := range listers.All() {
			author := dict.ID(id)
			if _, known := on[author]; !known {
				on[author] = nil
				err := l.listings(author, map[dict.ID]bool{ids[0]: true}, func(_, list dict.ID, item ask.Path) {
					item.Raw = slices.Clone(item.Raw)
					on[author] = append(on[author], listing{list, item})
				})
				if err != nil {
					return err
				}
			}
			for _, listing := range on[author] {
				if block := blocked[author][listing.list]; block != nil {
					found(other, listing.list, block, listing.item)
				}
			}
		}
	}
	return nil
}

// offer proposes a listblock record as the one to show for a member of the list.
func offer(best map[dict.ID]*ask.ShownRecord, member dict.ID, block *ask.ShownRecord) {
	p, blocks := block.Path()
	if !blocks {
		return
	}
	if best[member] == nil {
		best[member] = &ask.ShownRecord{}
	}
	best[member].Offer(p, ask.Timeless) // keeps the lowest key
}

// listersOf returns which of the accounts some have put an account on a list.
func (l *listBlocks) listersOf(id dict.ID, some sets.Set) (sets.Set, error) {
	if id == dict.None || some.Empty() {
		return sets.Set{}, nil
	}
	t, err := l.OpenActors(kinds.ListMember, id)
	if err != nil {
		return sets.Set{}, err
	}
	return l.And(some, t)
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
		l.bound = completeness{true, fmt.Sprintf("the blocked lists have more than %d items; not all were read, so blocks by lists may be missing", maxListItems)}
		return nil
	}
	return err
}

// blockedOf reads the listblocks of accounts, for lists of visible authors.
func (l *listBlocks) blockedOf(ids []dict.ID) ([]blocked, error) {
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
				l.bound = completeness{true, fmt.Sprintf("these accounts block more than %d lists; not all were read, so blocks by lists may be missing", maxListBlocks)}
				return false
			}
			p.Raw = slices.Clone(p.Raw)
			blocks = append(blocks, block{i, list, p})
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	all := make([]blocked, len(ids))
	if len(blocks) == 0 {
		return all, nil
	}
	slices.SortFunc(blocks, func(x, y block) int { return cmp.Compare(x.list, y.list) })
	var lists []dict.ID
	for _, b := range blocks {
		lists = append(lists, b.list)
	}
	lists = slices.Compact(lists)
	authors, times, err := l.authorsOf(lists)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		i, _ := slices.BinarySearch(lists, b.list)
		author := authors[i]
		if author == dict.None {
			continue
		}
		if all[b.by] == nil {
			all[b.by] = blocked{}
		}
		if all[b.by][author] == nil {
			all[b.by][author] = map[dict.ID]*ask.ShownRecord{}
		}
		if all[b.by][author][b.list] == nil {
			all[b.by][author][b.list] = &ask.ShownRecord{}
		}
		all[b.by][author][b.list].Offer(b.path, times[i])
	}
	return all, nil
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
	asked := map[string]bool{}
	beginAccounts(l.View, authors)
	for i, author := range authors {
		isDID := strings.HasPrefix(dids[i].S, "did:") // a URI with a handle names no list: items name the author's DID
		if isDID && !l.missing.Incomplete && !asked[dids[i].S] {
			asked[dids[i].S] = true
			if l.missing, err = missingOf(l.View, dids[i].S, author); err != nil {
				return nil, nil, err
			}
		}
		if !isDID || l.View.IsHidden(author) {
			authors[i] = dict.None
		}
	}
	return authors, times, nil
}
