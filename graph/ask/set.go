package ask

import (
	"fmt"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// An ActorSet is an open reverse set, such as followers. Its row is in memory; its leaves, if
// it has any, are read when they are needed.
type ActorSet struct {
	s       *state
	set     read.Set
	row     sets.Set  // the members in the row or rows
	removed sets.Set  // the removals there, which override the leaves
	whole   *sets.Set // the whole set, once it is known
}

// Actors opens the set of accounts that have an edge to subject, such as its followers. A record itself has its author.
func (s *edges) Actors(k kinds.Kind, subject dict.ID) (*ActorSet, error) {
	t := &ActorSet{s: s.state}
	t.whole = &t.row // unless there are leaves
	switch {
	case subject == dict.None:
		return t, nil
	case k.IsSelf():
		return t, s.Live(k, []dict.ID{subject}, func(_ int, author, _ dict.ID) error { t.row = sets.FromList([]uint64{uint64(author)}); return nil })
	}
	var err error
	if t.set, err = read.OpenSet(s.r, s.source.Layout, k, subject); err != nil {
		return nil, err
	}
	t.row, t.removed = sets.FromList(t.set.Members), sets.FromList(t.set.Removed)
	if t.set.Generation > 0 {
		t.whole = s.source.sets.changed(t)
	}
	return t, nil
}

// ActorCounts calls each, in no order, with the number of active accounts that have an edge to
// each of the subjects. It calls heavy, if there is one, before it reads a large set that is not in
// memory; an error ends the work.
func (s *edges) ActorCounts(k kinds.Kind, subjects []dict.ID, heavy func() error, each func(i int, total uint64) error) error {
	var whole []int // subjects whose sets have leaves, or several rows, or no rows
	var keys kv.Keys
	var key, end []byte
	for i, id := range subjects {
		if key, end = s.source.Layout.RowsOf(key[:0], k, id); end == nil && !k.IsSelf() {
			keys.Add(key)
		} else {
			whole = append(whole, i)
		}
	}
	if len(whole) == 0 {
		var members []uint64
		err := s.r.MultiGet(keys.List(), func(i int, v []byte, _ bool) error {
			var row format.Row
			v, err := format.RowOf(k, subjects[i], v)
			if err == nil {
				row, err = format.ParseRow(subjects[i], v)
			}
			if err != nil {
				return fmt.Errorf("graph: reading set %x: %w", keys.List()[i], err)
			}
			if row.Generation > 0 {
				if total, ok := s.source.sets.visible(format.AppendRowKey(nil, k, subjects[i]), row.Generation, v, s.hidden.Set); ok {
					return each(i, total)
				}
				whole = append(whole, i)
				return nil
			}
			if members, err = row.AppendMembers(members[:0]); err != nil {
				return fmt.Errorf("graph: reading set %x: %w", keys.List()[i], err)
			}
			total := len(members)
			for _, id := range members {
				if s.IsHidden(dict.ID(id)) {
					total--
				}
			}
			return each(i, uint64(total))
		})
		if err != nil {
			return err
		}
	}
	for i := range ahead(s.state, slices.Values(whole), func(i int) { s.BeginActors(k, subjects[i]) }) {
		t, err := s.Actors(k, subjects[i])
		if err != nil {
			return err
		}
		if _, known := t.Known(); !known && heavy != nil {
			if err := heavy(); err != nil {
				return err
			}
		}
		set, err := t.All()
		if err != nil {
			return err
		}
		total := set.Len() - sets.AndLen(s.Hidden(), set)
		s.source.sets.noteVisible(t, s.hidden.Set, total)
		if err := each(i, total); err != nil {
			return err
		}
	}
	return nil
}

// SubjectCounts calls each, in order, with the number of subjects of each of the actors. Inactive accounts
// do not count as subjects.
func (s *edges) SubjectCounts(k kinds.Kind, actors []dict.ID, each func(i int, total uint64) error) error {
	accounts := s.Kind(k).To.Is() == dict.DID
	var counted sets.Distinct
	var ids []uint64
	i := 0
	for actor := range ahead(s.state, slices.Values(actors), func(actor dict.ID) { s.BeginSubjects(k, actor) }) {
		var err error
		if ids, err = s.AppendSubjects(ids[:0], k, actor, Window{}); err != nil {
			return err
		}
		counted.Reset()
		for _, id := range ids {
			if !accounts || !s.IsHidden(dict.ID(id)) {
				counted.Add(id)
			}
		}
		if err := each(i, counted.Len()); err != nil {
			return err
		}
		i++
	}
	return nil
}

// Known returns the set if it is in memory: a small set, or one that is already decoded. Other
// sets have had more members than a row holds.
func (t *ActorSet) Known() (sets.Set, bool) {
	if t.whole == nil {
		return sets.Set{}, false
	}
	return *t.whole, true
}

// All returns the whole set.
func (t *ActorSet) All() (sets.Set, error) {
	if t.whole != nil {
		return *t.whole, nil
	}
	base, err := t.set.Leaves(t.s.r)
	if err != nil {
		return sets.Set{}, err
	}
	set := sets.FromBitmap(t.set.Over(base)) // the row overrides the leaves
	t.whole = &set
	t.s.source.sets.keep(t, base)
	return set, nil
}

// And returns the members that are in x. Unless the set is known, or asked for so often that it
// is worth caching, And reads only the leaves in which x may have members.
func (t *ActorSet) And(x sets.Set) (sets.Set, error) {
	if t.whole == nil && (x.Len() > sets.ListMax || t.s.source.sets.popular(t)) {
		if _, err := t.All(); err != nil {
			return sets.Set{}, err
		}
	}
	if t.whole != nil {
		return sets.And(x, *t.whole), nil
	}
	below, err := t.set.LeafMembers(t.s.r, t.s.source.Layout, x.List(nil))
	if err != nil {
		return sets.Set{}, err
	}
	set := sets.AndNot(sets.FromUnsorted(below), t.removed)
	return sets.Or(set, sets.And(x, t.row)), nil
}

// setCache is a cache of decoded large sets within a budget of bytes: the one that was used the longest ago goes first. The leaves below a
// row change only when the row's generation does. Every question reads the row from its own
// state, so the generation there says whether a cached set is right, and the row's members and
// removals override it. Writes need not invalidate anything.
type setCache struct {
	budget int

	mu      sync.Mutex // guards the fields below
	size    int
	sets    *simplelru.LRU[string, *cachedSet]
	touched map[string]int // how often sets with leaves were probed, or neverWhole
}

type cachedSet struct {
	generation uint64
	base       *roaring64.Bitmap
	row        []byte // the row that set was combined with
	set        sets.Set
	size       int

	// Guarded by mu; the rest is never changed.
	hidden  *roaring64.Bitmap // the hidden accounts that visible was counted with; nil: it was not
	visible uint64            // the active members
}

// changed returns the set if it is cached, combined with the row.
func (c *setCache) changed(t *ActorSet) *sets.Set {
	e := c.find(t)
	if e == nil {
		return nil
	}
	if slices.Equal(e.row, t.set.Rows) {
		return &e.set
	}
	set := sets.FromBitmap(t.set.Over(e.base)) // copies the set, so not under the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.sets.Peek(string(t.set.Key)); ok && now.generation == t.set.Generation {
		size := int(e.base.GetSizeInBytes()) + len(t.set.Rows) + set.Bytes()
		c.put(string(t.set.Key), &cachedSet{generation: now.generation, base: e.base, row: slices.Clone(t.set.Rows), set: set, size: size})
	}
	return &set
}

// find returns the cached entry of a set if it has the set's generation. Entries never change;
// they are replaced.
func (c *setCache) find(t *ActorSet) *cachedSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.sets.Get(string(t.set.Key))
	if !ok || e.generation != t.set.Generation {
		return nil
	}
	return e
}

// visible returns the number of active members of a set, if it was counted before with the same row and
// the same hidden accounts, which are never changed in place.
func (c *setCache) visible(key []byte, generation uint64, row []byte, hidden *roaring64.Bitmap) (total uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.sets.Get(string(key))
	if !ok || e.generation != generation || e.hidden == nil || e.hidden != hidden || !slices.Equal(e.row, row) {
		return 0, false
	}
	return e.visible, true
}

// noteVisible keeps the number of active members of a set, if the set is cached with the row of t.
func (c *setCache) noteVisible(t *ActorSet, hidden *roaring64.Bitmap, total uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.sets.Peek(string(t.set.Key)); ok && e.generation == t.set.Generation && slices.Equal(e.row, t.set.Rows) {
		e.hidden, e.visible = hidden, total
	}
}

// put replaces an entry and makes room for it. mu is held.
func (c *setCache) put(key string, e *cachedSet) {
	if old, ok := c.sets.Peek(key); ok {
		c.size -= old.size
	}
	c.sets.Add(key, e)
	for c.size += e.size; c.size > c.budget; {
		_, oldest, _ := c.sets.RemoveOldest()
		c.size -= oldest.size
	}
}

// popularAfter is the number of requests after which a large set is read whole although a part
// would do. maxTouched bounds the sets whose requests are counted.
const popularAfter, maxTouched = 2, 4096

// hasLeaves reports whether a set is known to have leaves; if it does, it is from now on.
func (c *setCache) hasLeaves(k kinds.Kind, subject dict.ID, does bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := format.AppendRowKey(nil, k, subject)
	_, known := c.touched[string(key)]
	if does && !known && len(c.touched) < maxTouched {
		c.touched[string(key)] = 0
	}
	return known
}

// neverWhole stands for the count of a set that is too large for the cache.
const neverWhole = -1

// popular counts a request for a set, and reports whether the set is worth reading whole and
// caching.
func (c *setCache) popular(t *ActorSet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.touched) >= maxTouched {
		clear(c.touched)
	}
	n := c.touched[string(t.set.Key)]
	if n == neverWhole {
		return false
	}
	c.touched[string(t.set.Key)] = n + 1
	return n >= popularAfter
}

// keep caches a set that was read whole, unless it is too large or a newer one is cached.
func (c *setCache) keep(t *ActorSet, base *roaring64.Bitmap) {
	size := int(base.GetSizeInBytes())
	c.mu.Lock()
	defer c.mu.Unlock()
	if size > c.budget/4 {
		c.touched[string(t.set.Key)] = neverWhole
		return
	}
	if old, ok := c.sets.Peek(string(t.set.Key)); ok && old.generation >= t.set.Generation {
		return
	}
	// The row is nil, so that the next request combines them again.
	c.put(string(t.set.Key), &cachedSet{generation: t.set.Generation, base: base, set: *t.whole, size: 2 * size})
}
