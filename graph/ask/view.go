package ask

import (
	"cmp"
	"math"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// A View is one state of the graph, for one goroutine and one question. Its sets contain hidden
// accounts unless a method says otherwise.
type View struct {
	state
	edges
	accounts
}

// state is what a View reads from.
type state struct {
	r      kv.Reader
	source *Source
	hidden Hidden
}

// Hidden are the accounts that are not active in a state.
type Hidden struct {
	Set   *roaring64.Bitmap
	Maybe sets.Filter // of the set, and of accounts that are not in it
}

// Has reports whether an account is not active.
func (h *Hidden) Has(id dict.ID) bool { return h.Maybe.Has(uint64(id)) && h.Set.Contains(uint64(id)) }

// A Source has what the views of a store share.
type Source struct {
	// Layout is the store's layout.
	Layout format.Layout
	// Kinds returns what is indexed.
	Kinds func() *kinds.Table
	// Lacks returns the kinds that were added after the store had accounts, by name.
	Lacks func() map[string]format.Lack
	// Owns reports whether this process writes a partition.
	Owns func(part uint8) bool
	// Unwritten returns the partitions that no living writer has.
	Unwritten func() Unwritten

	sets *setCache
}

// NewSource returns a Source whose views share up to setBytes of decoded large sets; 0 means
// 64 MiB.
func NewSource(o Source, setBytes int64) *Source {
	all, _ := simplelru.NewLRU[string, *cachedSet](math.MaxInt, nil) // it fails only for sizes below 1
	o.sets = &setCache{budget: int(cmp.Or(setBytes, 64<<20)), sets: all, touched: map[string]int{}}
	return &o
}

// View returns the state that r reads. hidden are its inactive accounts, and known what is known of all of it, but Unwritten. charge may be nil. It is
// called with the cost of each read: the bytes of its values (of chunks format.ChunkCost), and readCost for each key. If it returns an
// error, the read ends with that error.
func (s *Source) View(r kv.Reader, hidden Hidden, known *Known, charge func(cost int) error) *View {
	v := &View{state: state{r: r, source: s, hidden: hidden}}
	v.edges.state, v.accounts = &v.state, accounts{&v.state, known}
	if charge != nil {
		v.r = read.Charged(r, func(sought bool, key, value []byte) error {
			if sought {
				return charge(readCost + costOf(key, value))
			}
			return charge(readCost/16 + costOf(key, value))
		})
	}
	return v
}

// readCost is the price of looking up a key, in bytes read in order. A key of a scan costs a
// sixteenth of it.
const readCost = 512

// costOf returns what a value costs, besides being found.
func costOf(key, value []byte) int {
	switch {
	case len(key) == 0:
	case key[0] == format.KeyRecord:
		return format.ChunkCost(value)
	case key[0] == format.KeyRows:
		return len(value) / 4 // one of its rows is decoded
	}
	return len(value)
}

// Hidden returns the ids of the accounts that are not active.
func (s *state) Hidden() sets.Set { return sets.FromBitmap(s.hidden.Set) }

// IsHidden reports whether an account is not active.
func (s *state) IsHidden(actor dict.ID) bool { return s.hidden.Has(actor) }

// Kind returns the row of a kind.
func (s *state) Kind(k kinds.Kind) *kinds.Info { return s.source.Kinds().Info(k) }

// Counts returns the totals.
func (s *accounts) Counts() (format.Counts, error) { return read.Counts(s.r) }

// Cursors returns the cursors of all sources.
func (s *accounts) Cursors() ([]format.Cursor, error) { return read.Cursors(s.r) }

// Labelers returns the read state of each labeler, by its DID. A labeler may have been configured under
// several names: the state under its DID counts first, and one that is no longer configured last.
func (s *accounts) Labelers() (map[string]format.Labeler, error) {
	all, err := read.Labelers(s.r)
	by := map[string]format.Labeler{}
	rank := func(l format.Labeler) int {
		switch {
		case l.Problem == format.LabelerRemoved:
			return 0
		case l.Name != l.DID:
			return 1
		}
		return 2
	}
	for _, l := range all {
		if old, known := by[l.DID]; l.DID != "" && (!known || rank(l) > rank(old)) {
			by[l.DID] = l
		}
	}
	return by, err
}

// Labels calls each for the labels of a member in effect, and with onward for those of all members with higher ids, with the
// set of what has the label, until each returns false.
func (s *state) Labels(k kinds.Kind, member dict.ID, onward bool, each func(member, set dict.ID, e *LabelEntry) bool) error {
	return read.Labels(s.r, k, member, onward, each)
}

// Lookup finds the ids of strings; those that have none are left None.
func (s *state) Lookup(b *intern.Batch) error { return intern.Lookup(s.r, b) }

// Strings calls each with the string of every id, in order.
func (s *state) Strings(ns dict.Namespace, ids []dict.ID, each func(i int, s []byte) error) error {
	return intern.Strings(s.r, ns, ids, each)
}

// Authors is intern.Authors. The number of a key that names no time is EndOfTime or above.
func (s *state) Authors(ids []dict.ID, each func(i int, author dict.ID, tid uint64) error) error {
	return intern.Authors(s.r, ids, each)
}
