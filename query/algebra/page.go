package algebra

import (
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// This file divides a result into pages, and names its members. Members are ordered by id. The strings that members(…) names
// come last, in their order: the graph may never have seen them, or see them between two pages, and no member may move to
// another page.

// literal returns the id of string i, an argument of members(…) or the author of one. If it has no id, it returns its stand-in.
func literal(v *Evaluation, i int) dict.ID {
	if v.IDs[i] != dict.None {
		return v.IDs[i]
	}
	return standIn(v, v.Expr.Strings[i])
}

// standIn returns the stand-in id of the first of the strings that equal l, dict.None if there is none: dict.FirstReserved and its
// index. These ids are at the end of the id space, and never handed out.
func standIn(v *Evaluation, l language.Literal) dict.ID {
	if v.firsts == nil { // built once: members(…) may have thousands of arguments
		v.firsts = make(map[language.Literal]int, len(v.Expr.Strings))
		for n, l := range slices.Backward(v.Expr.Strings) {
			v.firsts[l] = n
		}
	}
	if i, ok := v.firsts[l]; ok {
		return dict.FirstReserved + dict.ID(i)
	}
	return dict.None
}

// namedLast replaces the ids of strings that members(…) names, and of their authors, by their stand-ins, and leaves out hidden accounts
// among them.
func (v *Evaluation) namedLast(set sets.Set) sets.Set {
	var from, to []uint64
	for i := range v.Expr.Root.Named() {
		if v.IDs[i] == dict.None || v.Expr.Strings[i].Is != v.Expr.Root.Is || !set.Has(uint64(v.IDs[i])) {
			continue
		}
		from = append(from, uint64(v.IDs[i]))
		if v.Expr.Root.Is != dict.DID || !v.View.IsHidden(v.IDs[i]) {
			to = append(to, uint64(standIn(v, v.Expr.Strings[i])))
		}
	}
	if len(from) == 0 {
		return set
	}
	return sets.Or(sets.AndNot(set, sets.FromUnsorted(from)), sets.FromUnsorted(to))
}

// Page returns up to limit members of set after a place, those that members(…) names last, and at most MaxPageBytes of strings.
// last is the place of the last one if more members follow, else dict.None.
func (v *Evaluation) Page(set sets.Set, after dict.ID, limit int) (ids []uint64, members []string, last dict.ID, err error) {
	ids, more := v.namedLast(set).Page(uint64(after), limit, v.Hidden())
	if members, err = v.Names(v.Expr.Root.Is, ids); err != nil {
		return nil, nil, dict.None, err
	}
	var size PageSize
	if n := slices.IndexFunc(members, size.Exceeded); n > 0 {
		members, ids, more = members[:n], ids[:n], true
	}
	if more {
		last = dict.ID(ids[len(ids)-1])
	}
	for i, id := range ids {
		if id >= uint64(dict.FirstReserved) {
			ids[i] = uint64(literal(v, int(id-uint64(dict.FirstReserved))))
		}
	}
	return ids, members, last, nil
}

// MaxPageBytes bounds the members of a page, since a URI may have 8 KiB. A thousand posts'
// URIs have 70 KB.
const MaxPageBytes = 512 << 10

// A PageSize is the number of bytes of a page's members.
type PageSize int

// Exceeded adds a member, and reports whether the page has no room for it. It has room for one in any case.
func (s *PageSize) Exceeded(member string) bool {
	first := *s == 0
	*s += PageSize(len(member))
	return *s > MaxPageBytes && !first
}

// Names returns the strings of ids of a namespace; stand-in ids have strings, too. If the ids ascend, it reads least.
func (v *Evaluation) Names(is dict.Namespace, ids []uint64) ([]string, error) {
	out := make([]string, len(ids))
	known, at := make([]dict.ID, 0, len(ids)), make([]int, 0, len(ids))
	for i, id := range ids {
		if dict.ID(id) >= dict.FirstReserved {
			out[i] = v.Expr.Strings[dict.ID(id)-dict.FirstReserved].S
		} else {
			known, at = append(known, dict.ID(id)), append(at, i)
		}
	}
	err := v.View.Strings(is, known, func(i int, s []byte) error {
		out[at[i]] = string(s)
		return nil
	})
	return out, err
}
