package algebra

import (
	"fmt"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// MaxListers bounds lists(…): it fails if more accounts have put the account on a list, because it
// reads the list items of each. It bounds quotes(…) and replies(…) in the same way.
const MaxListers = 50_000

// lists reads an OpListed or OpLists leaf.
func (r *Reader) lists(l Leaf, spend func(accounts int) error) (sets.Set, error) {
	var ids []uint64
	err := r.eachListed(l, spend, func(id dict.ID, _ ask.Path) { ids = append(ids, uint64(id)) })
	return sets.FromUnsorted(ids), err
}

// eachListed calls each for every member of an OpListed or OpLists leaf, with the list item
// that makes it a member. Lists of hidden accounts have no members. spend, if there is one, is called before the records of other
// accounts are read.
func (r *Reader) eachListed(l Leaf, spend func(accounts int) error, each func(id dict.ID, p ask.Path)) error {
	if l.Op == language.OpListed {
		if r.View.IsHidden(l.By) {
			return nil
		}
		return r.View.Listed(l.Of, l.By, l.Window, each)
	}
	by := l.Kind
	if by == kinds.ListItem {
		by = kinds.ListMember
	}
	set, err := r.leafSet(Leaf{Op: language.OpReverse, Kind: by, Of: l.Of})
	if err == nil && set.Len() > MaxListers {
		err = &LimitError{fmt.Sprintf("lists, and sets of the records that name something, such as quotes, read the records of every account that has such a record, and fail above %d accounts; here are %d", MaxListers, set.Len())}
	}
	if err == nil && spend != nil {
		err = spend(int(set.Len()))
	}
	if err != nil {
		return err
	}
	from := IDs(set.List(nil))
	if by == l.Kind {
		return r.View.Naming(by, l.Of, from, l.Window, each)
	}
	return r.View.Lists(l.Of, from, l.Window, each)
}

// listSizes is Sizes along an OpListed or OpLists set.
func (r *Reader) listSizes(via language.Via, ids []dict.ID, each func(i int, total uint64) error) error {
	authors := map[dict.ID]dict.ID{}
	if via.Op == language.OpListed {
		lists := slices.DeleteFunc(slices.Clone(ids), func(id dict.ID) bool { return id == dict.None || id >= dict.FirstReserved })
		err := r.View.Authors(lists, func(i int, author dict.ID, _ uint64) error { authors[lists[i]] = author; return r.Ended.Err() })
		if err != nil {
			return err
		}
	}
	hidden := r.hiddenIn(via.Is)
	for i, id := range ids {
		t, err := r.Leaf(Leaf{Op: via.Op, Kind: via.Kind, Of: id, By: authors[id]})
		if err == nil {
			err = each(i, t.Set.Len()-sets.AndLen(hidden, t.Set))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
