package intern

// A Batch gathers the strings of many events, each once, to be resolved
// together. It is reused: Reset keeps its memory.
type Batch struct {
	arena []byte
	items []batchItem
	slots []uint32 // 1 + an index of items; 0: free
	keys  [][]byte // scratch of the lookups
	miss  []int32  // the items that keys are for
	kbuf  []byte
}

type batchItem struct {
	hash  uint64
	id    ID
	start uint32
	len   uint16
	ns    Namespace
	state itemState
	// Of a URI that is packed, once it was not found in the cache: the index
	// of its author among the items, and the rest of it.
	author     int32
	collection byte
	tid        uint64
}

// raw is the author of a string that is not packed.
const raw int32 = -1

type itemState uint8

const (
	unresolved itemState = iota
	cached               // known from the cache
	stored               // found in the store
	created              // made by the transaction under way
)

// Reset empties the batch.
func (b *Batch) Reset() {
	b.arena, b.items = b.arena[:0], b.items[:0]
	clear(b.slots)
}

// Retry begins another attempt at a transaction: what the last one made may
// have been discarded, and is looked up again.
func (b *Batch) Retry() {
	for i := range b.items {
		if it := &b.items[i]; it.state == created {
			it.id, it.state = None, unresolved
		}
	}
}

// Len returns how many strings the batch holds.
func (b *Batch) Len() int { return len(b.items) }

// Add puts s, which must be valid in ns, into the batch and returns its index:
// that of the first of its equals. s is copied.
func (b *Batch) Add(ns Namespace, s []byte) int {
	if 4*(len(b.items)+1) > 3*len(b.slots) {
		b.grow()
	}
	hash := hashString(ns, s)
	mask := uint64(len(b.slots) - 1)
	i := hash & mask
	for ; b.slots[i] != 0; i = (i + 1) & mask {
		it := &b.items[b.slots[i]-1]
		if it.hash == hash && it.ns == ns && string(b.string(it)) == string(s) {
			return int(b.slots[i] - 1)
		}
	}
	b.items = append(b.items, batchItem{hash: hash, start: uint32(len(b.arena)), len: uint16(len(s)), ns: ns, author: raw})
	b.arena = append(b.arena, s...)
	b.slots[i] = uint32(len(b.items))
	return len(b.items) - 1
}

func (b *Batch) grow() {
	b.slots = make([]uint32, max(1024, 2*len(b.slots)))
	mask := uint64(len(b.slots) - 1)
	for n := range b.items {
		i := b.items[n].hash & mask
		for b.slots[i] != 0 {
			i = (i + 1) & mask
		}
		b.slots[i] = uint32(n + 1)
	}
}

func (b *Batch) string(it *batchItem) []byte {
	return b.arena[it.start : it.start+uint32(it.len)]
}

// ID returns the id of the i-th string: None before it is resolved, and after
// a Lookup of a string that has none.
func (b *Batch) ID(i int) ID { return b.items[i].id }

// Made reports whether the i-th string got its id in the transaction under
// way: nothing can be stored about it yet.
func (b *Batch) Made(i int) bool { return b.items[i].state == created }

// authors adds the authors of the packed URIs among the items from index from
// on that are not resolved.
func (b *Batch) authors(from int) {
	for i := from; i < len(b.items); i++ {
		it := &b.items[i]
		if it.ns != URI || it.state != unresolved || it.author != raw {
			continue
		}
		if p, ok := splitURI(b.string(it)); ok {
			author := b.Add(DID, p.author) // may move items
			it = &b.items[i]
			it.author, it.collection, it.tid = int32(author), p.collection, p.tid
		}
	}
}

// appendForm appends the form in which an item's string is stored. The author
// of a packed URI must have its id.
func (b *Batch) appendForm(dst []byte, it *batchItem) []byte {
	switch {
	case it.ns == DID:
		return appendPackedDID(dst, b.string(it))
	case it.author == raw:
		return appendRaw(dst, URI, b.string(it))
	}
	return appendPackedURI(dst, uriParts{collection: it.collection, tid: it.tid}, b.items[it.author].id)
}

// missing collects the keys of the items of a namespace that are not resolved
// yet. The URIs of authors without an id are left out: they have none either.
func (b *Batch) missing(ns Namespace) {
	b.keys, b.miss, b.kbuf = b.keys[:0], b.miss[:0], b.kbuf[:0]
	for i := range b.items {
		it := &b.items[i]
		if it.ns != ns || it.state != unresolved || it.author != raw && b.items[it.author].id == None {
			continue
		}
		start := len(b.kbuf)
		b.kbuf = b.appendForm(append(b.kbuf, KeyID, byte(ns)), it)
		// If kbuf grows, earlier keys go on living in the old array.
		b.keys = append(b.keys, b.kbuf[start:len(b.kbuf):len(b.kbuf)])
		b.miss = append(b.miss, int32(i))
	}
}
