package check

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A comparison finds the elements that only one of two readings of the store has, its sides. Each side is read in its own order, and the
// hashes of its elements (128 bits, with a new seed) are added up, in parts by the hash. If some of the sums differ, both sides are read
// again, and an element of such a part is kept until the other side has it, too.
type comparison struct {
	differ string    // what to report if they differ, with the numbers of elements
	only   [2]string // what to report of an element that only one side has
	args   func(element []byte) []any
	seed   uint64
	sums   [2][parts]sum

	mu    sync.Mutex     // guards left
	left  map[string]int // in the second reading: how often the first side has an element, less the second
	wrong [parts]bool    // the parts of its elements
}

const (
	parts    = 1 << 14
	mostKept = 2 << 20 // elements of a side that may be kept in memory
)

// sum is the number of elements, and the sum of their hashes.
type sum struct {
	n    uint64
	hash [2]uint64
}

func newComparison(differ, first, second string, args func(element []byte) []any) *comparison {
	return &comparison{differ: differ, only: [2]string{first, second}, args: args, seed: rand.Uint64()}
}

// add adds an element of a side, 0 or 1.
func (c *comparison) add(side int, element []byte) {
	h := xxh3.Hash128Seed(element, c.seed)
	part := h.Hi % parts
	if c.left == nil {
		var carry uint64
		s := &c.sums[side][part]
		s.n++
		s.hash[0], carry = bits.Add64(s.hash[0], h.Lo, 0)
		s.hash[1], _ = bits.Add64(s.hash[1], h.Hi, carry)
	} else if c.wrong[part] {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.left[string(element)] += 1 - 2*side; c.left[string(element)] == 0 {
			delete(c.left, string(element))
		}
	}
}

// addNumbers is add for an element of three numbers, and numbers reads it.
func (c *comparison) addNumbers(side int, x, y, z uint64) {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], x)
	binary.BigEndian.PutUint64(b[8:], y)
	binary.BigEndian.PutUint64(b[16:], z)
	c.add(side, b[:])
}

func numbers(e []byte) (x, y, z uint64) {
	return binary.BigEndian.Uint64(e), binary.BigEndian.Uint64(e[8:]), binary.BigEndian.Uint64(e[16:])
}

// ended ends the first reading, and reports whether the sides differ.
func (c *comparison) ended(v *pass) (differ bool) {
	var n, kept [2]uint64
	all := true
	for part := range parts {
		x, y := c.sums[0][part], c.sums[1][part]
		if n[0], n[1] = n[0]+x.n, n[1]+y.n; x == y {
			continue
		}
		differ = true
		if c.wrong[part] = max(kept[0]+x.n, kept[1]+y.n) <= mostKept; c.wrong[part] {
			kept[0], kept[1] = kept[0]+x.n, kept[1]+y.n
		}
		all = all && c.wrong[part]
	}
	if c.left = map[string]int{}; differ {
		v.broken(c.differ, n[0], n[1])
	}
	if !all {
		v.broken("only some of these differences are named: those among %d and %d", kept[0], kept[1])
	}
	return differ
}

func newComparisons(t *kinds.Table) (edges, records, dates, strings *comparison) {
	ofKind := func(e []byte) []any {
		k, actor, x := numbers(e)
		return []any{t.Info(kinds.Kind(k)).Name, actor, x}
	}
	return newComparison("the records have %d edges, the sets %d, and they differ",
			"actor %[2]d has a %[1]s record of %[3]d, but is not in the subject's set",
			"actor %[2]d is in the %[1]s set of %[3]d, but has no such record", ofKind),
		newComparison("the states count the records of %d accounts and kinds, %d have some, and they differ",
			"account %[2]d does not have %[3]d %[1]s records, its state counts them",
			"account %[2]d has %[3]d %[1]s records, its state counts another number", ofKind),
		newComparison("the dates of %d records differ from those of %d members of sets",
			"actor %[2]d has a %[1]s record of %[3]d of the date %[4]d, and another date in the set",
			"actor %[2]d has the date %[4]d in the %[1]s set of %[3]d, and no such record",
			func(e []byte) []any {
				k, actor, subject := numbers(e)
				return []any{t.Info(kinds.Kind(k)).Name, actor, subject, k >> 8}
			}),
		newComparison("dictionary: %d strings have ids, %d ids have strings, and they differ",
			"dictionary: %s %x has id %d, which does not stand for it",
			"dictionary: %s %x does not have the id %d, which stands for it",
			func(e []byte) []any {
				form, id := e[1:len(e)-8], e[len(e)-8:]
				return []any{dict.Namespace(e[0]), form, binary.BigEndian.Uint64(id)}
			})
}

// compare reports what only one side of a comparison has.
func (v *checker) compare() error {
	if v.damage.any() {
		return nil
	}
	all := []*comparison{v.inDictionary}
	if !v.unreadable { // else what is malformed would be missing
		all = append(all, v.inSets, v.inStates, v.inDates)
	}
	if all = slices.DeleteFunc(all, func(c *comparison) bool { return !c.ended(&v.pass) }); len(all) == 0 {
		return nil
	}
	again := *v
	again.report = func(string) {}
	again.dictionary.pass = again.pass
	if err := cmp.Or(again.scan([]byte{format.KeyAccount}, again.accounts), again.sides((*dictionary).both)); err != nil {
		return err
	}
	for _, c := range all {
		for _, element := range slices.Sorted(maps.Keys(c.left)) {
			text := c.only[0]
			if c.left[element] < 0 {
				text = c.only[1]
			}
			v.broken(text, c.args([]byte(element))...)
		}
	}
	return nil
}
