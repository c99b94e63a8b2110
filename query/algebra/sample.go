package algebra

import (
	"cmp"
	"hash/fnv"
	"io"

	"skein.blue/internal/sets"
	"skein.blue/query/language"
)

// sampled evaluates a sample(…). A sample has the visible members with
// the lowest hashes of their ids (a bottom-k sample: Cohen and Kaplan, "Summarizing data using
// bottom-k sketches", 2007). So it is the same for the same set and seed, changes by one member for
// each change of the set, and the samples of two sets with one seed overlap as the sets do.
func sampled(v *Evaluation, n *language.Node) (set sets.Set, err error) {
	if set, err = v.Set(&n.Args[0]); err != nil {
		return set, err
	}
	return lowest(set, v.hiddenIn(n.Is), n.Least, n.Seed, named(v, &n.Args[0])), nil
}

// named returns hashes of the strings that n names as members, by id. A sample uses these: such a string may have no id yet,
// and then has a stand-in that depends on its place in the expression, or get one between two pages.
func named(v *Evaluation, n *language.Node) map[uint64]uint64 {
	hashes := map[uint64]uint64{}
	for i := range n.Named() {
		if v.Expr.Strings[i].Is != n.Is { // ids of accounts and of records are apart
			continue
		}
		h := fnv.New64a()
		_, _ = io.WriteString(h, v.Expr.Strings[i].S)
		hashes[uint64(literal(v, i))] = h.Sum64()
	}
	return hashes
}

// lowest returns the n members of a set, beside hidden ones, with the lowest hashes, or all if there are fewer.
func lowest(set, hidden sets.Set, n int, seed uint64, named map[uint64]uint64) sets.Set {
	type hashed struct{ hash, id uint64 }
	first := top[hashed]{most: n, compare: func(x, y hashed) int { return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.id, y.id)) }}
	for id := range set.All() {
		of := id
		if hash, ok := named[id]; ok {
			of = hash
		}
		if !hidden.Has(id) {
			first.offer(hashed{mix(of, seed), id})
		}
	}
	var ids []uint64
	for _, x := range first.sorted() {
		ids = append(ids, x.id)
	}
	return sets.FromUnsorted(ids)
}

// mix is a hash of an id: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014).
func mix(id, seed uint64) uint64 {
	x := id + (seed+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
