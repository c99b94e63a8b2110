package graph

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/intern/dict"
	"skein/internal/idset"
	"skein/internal/kv"
	"skein/internal/runs"
)

// ActorSet is a reverse set that has been opened: its row is read, and of its
// containers, if it has any, no more than is asked for. Hidden accounts are in
// it.
type ActorSet struct {
	s          *Snapshot
	key        []byte // of the row, or of those of its partitions the prefix
	below      []byte // the prefix of the keys of containers
	generation uint64
	row        idset.Set // the members in the row, or rows
	removed    idset.Set
	whole      *idset.Set // once it is known
}

// Actors opens the set of who has an edge to subject, such as followers.
func (s *Snapshot) Actors(k kinds.Kind, subject dict.ID) (*ActorSet, error) {
	t := &ActorSet{s: s}
	if subject == dict.None {
		t.whole = &t.row
		return t, nil
	}
	v, err := t.open(s.r, s.s.Layout, k, subject)
	if err == nil && t.whole == nil {
		t.whole = s.s.sets.changed(t, v)
	}
	return t, err
}

// open reads the set's row, or those of its partitions, and returns their bytes.
func (t *ActorSet) open(r kv.Reader, l format.Layout, k kinds.Kind, subject dict.ID) (rows []byte, err error) {
	t.key = format.AppendRowKey(nil, k, subject)
	t.below = l.Containers(t.key)
	var members, removed []uint64
	add := func(v []byte) error {
		row, err := format.ParseRow(subject, v)
		if err != nil {
			return err
		}
		if members, err = row.AppendMembers(members); err != nil {
			return err
		}
		// Generations only grow: in two states that have one sum, all are the
		// same.
		t.generation += row.Generation
		removed, err = row.AppendRemoved(removed)
		return err
	}
	if l.Shared() {
		err = r.Scan(t.key, t.below, false, func(_, v []byte) (bool, error) {
			rows = append(rows, v...)
			err := add(v)
			return err == nil, err
		})
		slices.Sort(members)
		slices.Sort(removed)
	} else {
		var v []byte
		if v, _, err = r.Get(t.key); err == nil {
			rows, err = v, add(v)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("graph: reading set %x: %w", t.key, err)
	}
	t.row, t.removed = idset.FromList(members), idset.FromList(removed)
	if t.generation == 0 {
		t.whole = &t.row
	}
	return rows, nil
}

// Known returns the set if it costs nothing to have: it is small, or decoded
// already. What is not known has had more members than a row holds.
func (t *ActorSet) Known() (idset.Set, bool) {
	if t.whole == nil {
		return idset.Set{}, false
	}
	return *t.whole, true
}

// All returns the whole set.
func (t *ActorSet) All() (idset.Set, error) {
	if t.whole != nil {
		return *t.whole, nil
	}
	base, err := t.s.s.sets.base(t)
	if err != nil {
		return idset.Set{}, err
	}
	set := t.over(base)
	t.whole = &set
	t.s.s.sets.keep(t, base)
	return set, nil
}

// over lays the row over the containers. The result is a copy: containers in
// base are marked as shared, and the library writes to the marks even when it
// only reads, so base is for copying, and for nothing else.
func (t *ActorSet) over(base *roaring64.Bitmap) idset.Set {
	set := base.Clone()
	set.AddMany(t.row.List(nil))
	for _, id := range t.removed.List(nil) {
		set.Remove(id)
	}
	return idset.FromBitmap(set)
}

// probeBlocks is up to how many containers are looked up one by one, rather
// than all of them read. With the whole network's accounts a set has some 600.
const probeBlocks = 512

// And returns the members that are in x. Of a set that is not known, it reads
// only the containers that x has members in, unless the set is asked for so
// often that it is worth keeping.
func (t *ActorSet) And(x idset.Set) (idset.Set, error) {
	if t.whole == nil && (x.Len() > idset.ListMax || t.s.s.sets.popular(t)) {
		if _, err := t.All(); err != nil {
			return idset.Set{}, err
		}
	}
	if t.whole != nil {
		return idset.And(x, *t.whole), nil
	}
	ids := x.List(nil)
	var blocks []uint64
	for _, id := range ids {
		if b := format.BlockOf(id); len(blocks) == 0 || blocks[len(blocks)-1] != b {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) > probeBlocks {
		if _, err := t.All(); err != nil {
			return idset.Set{}, err
		}
		return idset.And(x, *t.whole), nil
	}
	var keys keyBuffer
	for _, b := range blocks {
		keys.add(format.AppendBlock(slices.Clone(t.below), b))
	}
	t.s.s.sets.count("probe")
	below := make([]uint64, 0, len(ids))
	err := t.s.r.MultiGet(keys.keys, func(i int, v []byte, ok bool) error {
		n := 0
		for n < len(ids) && format.BlockOf(ids[n]) == blocks[i] {
			n++
		}
		mine := ids[:n]
		ids = ids[n:]
		if !ok {
			return nil
		}
		for _, id := range mine {
			has, err := format.ContainerHas(v, uint16(id))
			if err != nil {
				return fmt.Errorf("graph: container %x: %w", keys.keys[i], err)
			}
			if has {
				below = append(below, id)
			}
		}
		return nil
	})
	if err != nil {
		return idset.Set{}, err
	}
	set := idset.AndNot(idset.FromList(below), t.removed)
	return idset.Or(set, idset.And(x, t.row)), nil
}

// readBitmap reads a whole reverse set, or the hidden set, as a bitmap of the
// caller's.
func readBitmap(l format.Layout, r kv.Reader, k kinds.Kind, subject dict.ID) (*roaring64.Bitmap, error) {
	t := &ActorSet{}
	if _, err := t.open(r, l, k, subject); err != nil {
		return nil, err
	}
	if t.whole != nil {
		return t.whole.Bitmap().Clone(), nil
	}
	base, err := readContainers(r, t.below)
	if err != nil {
		return nil, err
	}
	return t.over(base).Bitmap(), nil
}

// readContainers reads the containers whose keys begin with prefix, for ActorSet.over. It
// does not decode them: it puts the headers of the portable Roaring format
// (https://github.com/RoaringBitmap/RoaringFormatSpec) before their bytes.
func readContainers(r kv.Reader, prefix []byte) (*roaring64.Bitmap, error) {
	st, _ := stitchers.Get().(*stitcher)
	defer stitchers.Put(st)
	st.parts, st.data = st.parts[:0], st.data[:0]
	lo := append(slices.Clone(prefix), 0) // not the row
	err := r.Scan(lo, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		_, _, block, isRow, err := format.ParseReverseKey(k)
		if err == nil && isRow {
			err = format.ErrContainer
		}
		if err == nil {
			err = st.add(block, v)
		}
		if err != nil {
			return false, fmt.Errorf("graph: reading container %x: %w", k, err)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return st.bitmap()
}

// stitchers keep their memory: that of a large set is much to ask for anew.
var stitchers = sync.Pool{New: func() any { return new(stitcher) }}

// stitcher makes a bitmap of containers, which come in ascending order.
type stitcher struct {
	parts []stitched
	data  []byte
}

type stitched struct {
	block      uint64
	start, end int
	n          int // members
}

func (s *stitcher) add(block uint64, v []byte) error {
	_, present, err := format.SplitContainer(v)
	if err != nil || len(present) == 0 {
		return err
	}
	start, n := len(s.data), len(present)/2
	if len(present) == format.BitmapBytes {
		n = 0
		for i := 0; i < format.BitmapBytes; i += 8 {
			n += bits.OnesCount64(binary.LittleEndian.Uint64(present[i:]))
		}
	}
	if len(present) == format.BitmapBytes && n <= format.ArrayMax { // Roaring has arrays of up to 4,096, we to 4,095
		ids, err := format.ContainerMembers(0, v)
		if err != nil {
			return err
		}
		for _, id := range ids {
			s.data = binary.LittleEndian.AppendUint16(s.data, uint16(id))
		}
	} else {
		s.data = append(s.data, present...)
	}
	s.parts = append(s.parts, stitched{block, start, len(s.data), n})
	return nil
}

func (s *stitcher) bitmap() (*roaring64.Bitmap, error) {
	const noRuns = 12346
	var tops int
	out := make([]byte, 8, 8+len(s.data)+16*len(s.parts)+64)
	for parts := range runs.Of(s.parts, func(x, y stitched) bool { return x.block>>16 == y.block>>16 }) {
		tops++
		out = binary.LittleEndian.AppendUint32(out, uint32(parts[0].block>>16))
		out = binary.LittleEndian.AppendUint32(out, noRuns)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(parts)))
		for _, p := range parts {
			out = binary.LittleEndian.AppendUint16(out, uint16(p.block))
			out = binary.LittleEndian.AppendUint16(out, uint16(p.n-1))
		}
		offset := 8 + 8*len(parts)
		for _, p := range parts {
			out = binary.LittleEndian.AppendUint32(out, uint32(offset))
			offset += p.end - p.start
		}
		out = append(out, s.data[parts[0].start:parts[len(parts)-1].end]...)
	}
	binary.LittleEndian.PutUint64(out, uint64(tops))
	set := roaring64.New()
	if _, err := set.FromUnsafeBytes(out); err != nil {
		return nil, fmt.Errorf("graph: %w: %w", format.ErrContainer, err)
	}
	return set, nil
}

// setCache keeps large sets that are asked for often decoded, the latest used,
// within a budget of bytes. Containers under a row change only with its
// generation, so a set that is kept is known to be right by the row alone,
// which every question reads from its own snapshot; what the row says besides
// is laid over it. Nothing has to be told to the cache.
type setCache struct {
	budget  int
	results func(result string)

	mu      sync.Mutex
	size    int
	tick    uint64
	sets    map[string]*cachedSet
	touched map[string]uint64 // sets that were probed: how often
}

type cachedSet struct {
	generation uint64
	base       *roaring64.Bitmap
	row        []byte    // the row that
	set        idset.Set // was made with
	size       int
	used       uint64 // guarded by mu; the rest is never changed
}

func newSetCache(budget int64) *setCache {
	if budget <= 0 {
		budget = 64 << 20
	}
	return &setCache{budget: int(budget), sets: map[string]*cachedSet{}, touched: map[string]uint64{}}
}

func (c *setCache) count(result string) {
	if c.results != nil {
		c.results(result)
	}
}

// changed returns the set if it is kept, with the row v laid over it.
func (c *setCache) changed(t *ActorSet, v []byte) *idset.Set {
	e, base := c.find(t)
	if e == nil {
		return nil
	}
	c.count("cache")
	if slices.Equal(e.row, v) {
		return &e.set
	}
	set := t.over(base) // a copy of the set: not under the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.sets[string(t.key)]; now != nil && now.generation == t.generation {
		size := int(base.GetSizeInBytes()) + len(v) + set.Bytes()
		c.put(string(t.key), &cachedSet{generation: now.generation, base: base, row: slices.Clone(v), set: set, size: size})
	}
	return &set
}

// find returns what is kept of a set, if it is of the set's generation. An entry
// is never changed, only replaced.
func (c *setCache) find(t *ActorSet) (*cachedSet, *roaring64.Bitmap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.sets[string(t.key)]
	if e == nil || e.generation != t.generation {
		return nil, nil
	}
	c.tick++
	e.used = c.tick
	return e, e.base
}

// put keeps an entry in the place of an older one, and makes room for it. It is
// called with mu held.
func (c *setCache) put(key string, e *cachedSet) {
	if old := c.sets[key]; old != nil {
		c.size -= old.size
	}
	c.tick++
	e.used = c.tick
	c.sets[key] = e
	c.size += e.size
	for c.size > c.budget {
		c.evict()
	}
}

// popularAfter is how often a large set must be asked for to be read whole
// where a part would do.
const popularAfter, maxTouched = 2, 4096

func (c *setCache) popular(t *ActorSet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.touched) >= maxTouched {
		clear(c.touched)
	}
	c.touched[string(t.key)]++
	return c.touched[string(t.key)] > popularAfter
}

// base returns the containers of a set.
func (c *setCache) base(t *ActorSet) (*roaring64.Bitmap, error) {
	c.count("load")
	return readContainers(t.s.r, t.below)
}

// keep keeps a set that was read whole, unless it is too large for the budget
// or a newer one is there.
func (c *setCache) keep(t *ActorSet, base *roaring64.Bitmap) {
	size := int(base.GetSizeInBytes())
	if size > c.budget/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.sets[string(t.key)]; old != nil && old.generation >= t.generation {
		return
	}
	// The row is laid over it again when it is asked for: with the row nil.
	c.put(string(t.key), &cachedSet{generation: t.generation, base: base, set: *t.whole, size: 2 * size})
}

// evict drops the set that was used the longest ago. It is called with mu held.
func (c *setCache) evict() {
	var oldest string
	for key, e := range c.sets {
		if oldest == "" || e.used < c.sets[oldest].used {
			oldest = key
		}
	}
	c.size -= c.sets[oldest].size
	delete(c.sets, oldest)
}
