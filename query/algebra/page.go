package algebra

import (
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// This file divides a result into pages, and names its members. Members are ordered by id, and strings that
// the graph has never seen have stand-in ids, which must not move from page to page.

// standInID returns a stand-in id for string i of the expression. A string that the graph
// has never seen has no id, but may be an argument of members(…). Its stand-in is at the end
// of the id space, whose ids are never handed out.
func standInID(i int) dict.ID { return dict.FirstReserved + dict.ID(i) }

// Unseen reports, by index in Expr.Strings, which strings had no id when the first page was
// made. Later pages keep treating them so, even if they have an id by then: members are
// ordered by id, and a new id would move them to another page.
type Unseen []bool

// literal returns the id of string i, an argument of members(…). If it has no id, it returns
// the stand-in id of the first string that equals it.
func (v *Bound) literal(i int) dict.ID {
	if v.IDs[i] != dict.None {
		return v.IDs[i]
	}
	return standInID(v.first(i))
}

// first returns the index of the first of the strings that equal string i.
func (v *Bound) first(i int) int {
	if v.firsts == nil { // built once: members(…) may have thousands of arguments
		v.firsts = make(map[language.Literal]int, len(v.Expr.Strings))
		for n, l := range slices.Backward(v.Expr.Strings) {
			v.firsts[l] = n
		}
	}
	return v.firsts[v.Expr.Strings[i]]
}

// pin replaces the ids of strings that were unseen on the first page by their stand-in ids.
func (v *Bound) pin(set sets.Set, u Unseen) sets.Set {
	var from, to []uint64
	for i := range v.Expr.Strings {
		if i < len(u) && u[i] && v.Expr.Strings[i].Is == v.Expr.Root.Is && v.IDs[i] != dict.None && set.Has(uint64(v.IDs[i])) {
			from, to = append(from, uint64(v.IDs[i])), append(to, uint64(standInID(v.first(i))))
		}
	}
	if len(from) == 0 {
		return set
	}
	return sets.Or(sets.AndNot(set, sets.FromUnsorted(from)), sets.FromUnsorted(to))
}

// Unseen returns which strings have no id in this snapshot.
func (v *Bound) Unseen() Unseen {
	u := make(Unseen, len(v.IDs))
	for i, id := range v.IDs {
		u[i] = id == dict.None
	}
	return u
}

// Page returns up to limit members of set with ids above after, in the order of their ids,
// and at most MaxPageBytes of strings. last is the last of the ids if more members follow,
// else dict.None.
func (v *Bound) Page(set sets.Set, after dict.ID, limit int, pinned Unseen) (ids []uint64, members []string, last dict.ID, err error) {
	ids, more := v.pin(set, pinned).Page(uint64(after), limit, v.pinnedHidden(pinned))
	if members, err = v.Names(ids); err != nil {
		return nil, nil, dict.None, err
	}
	bytes := 0
	for i := range members {
		if bytes += len(members[i]); bytes > MaxPageBytes && i > 0 {
			members, ids, more = members[:i], ids[:i], true
			break
		}
	}
	if more {
		last = dict.ID(ids[len(ids)-1])
	}
	return ids, members, last, nil
}

// MaxPageBytes bounds the members of a page, since a URI may have 8 KiB. A thousand posts'
// URIs have 70 KB.
const MaxPageBytes = 512 << 10

// pinnedHidden returns Hidden, and the stand-in ids of hidden accounts that pin replaced.
func (v *Bound) pinnedHidden(u Unseen) sets.Set {
	h := v.Hidden()
	if h.Empty() {
		return h
	}
	var more []uint64
	for i := range v.Expr.Strings {
		if i < len(u) && u[i] && v.IDs[i] != dict.None && h.Has(uint64(v.IDs[i])) {
			more = append(more, uint64(standInID(i)))
		}
	}
	if len(more) == 0 {
		return h
	}
	return sets.Or(h, sets.FromUnsorted(more))
}

// Names returns the strings of ids, which ascend; stand-in ids have strings, too.
func (v *Bound) Names(ids []uint64) ([]string, error) {
	out := make([]string, len(ids))
	known := make([]dict.ID, 0, len(ids))
	for i, id := range ids {
		if dict.ID(id) >= dict.FirstReserved { // stand-in ids come last
			out[i] = v.Expr.Strings[dict.ID(id)-dict.FirstReserved].S
		} else {
			known = append(known, dict.ID(id))
		}
	}
	err := v.View.Strings(v.Expr.Root.Is, known, func(i int, s []byte) error {
		out[i] = string(s)
		return nil
	})
	return out, err
}
