package intern

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Batch gathers the strings of many events, each once, to resolve them together. It is
// reused: Reset keeps its memory.
//
// Add decomposes a string that has a packed form (dict/pack.go), and does not keep its text.
// It also adds the author of an AT URI, so that every author has an id (Authors).
type Batch struct {
	arena []byte // raw strings
	items []batchItem
	slots []uint32 // 1 + an index of items; 0: free
	keys  [][]byte // scratch of the lookups
	miss  []int32  // the items of keys
	fresh []int32  // scratch of missing
	kbuf  []byte

	made      maker // scratch of create
	checkouts [len(dict.Namespaces) + 1]checkout
}

type batchItem struct {
	key        cacheKey // of a packed URI: with the index of its author, see Add
	id         dict.ID
	tid        uint64 // of a packed URI
	start      uint32 // of a raw string, in arena
	len        uint16
	author     int32 // of a packed URI: the index of its author; else noAuthor
	collection byte  // of a packed URI
	ns         dict.Namespace
	state      itemState
	claimed    bool // new, and claimed for this batch
}

// noAuthor is the author of an item that is not a packed URI.
const noAuthor int32 = -1

type itemState uint8

const (
	unresolved itemState = iota
	cached               // known from the cache
	stored               // found in the store
	created              // created by the transaction under way
)

// cacheKey is a string in 16 bytes: a tag and the packed form. The few strings without a packed
// form have the beginning of their SHA-256 instead.
type cacheKey struct{ hi, lo uint64 }

const (
	tagDID = 1 + iota
	tagURI
	tagRaw       // and the namespace
	tagUnsettled = tagRaw + 8
)

// A hashKey has random secrets: strings come from strangers, who must not be able to choose
// strings that collide in a table.
type hashKey [4]uint64

func newHashKey() hashKey {
	return hashKey{rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1, rand.Uint64() | 1}
}

// tableKey is for the tables of this process.
var tableKey = newHashKey()

func (k cacheKey) hash(secrets *hashKey) uint64 {
	hi, lo := bits.Mul64(k.hi^secrets[0], k.lo^secrets[1])
	hi, lo = bits.Mul64(hi^lo^secrets[2], secrets[3]^k.lo)
	return hi ^ lo
}

func didKey(form []byte) cacheKey {
	return cacheKey{tagDID<<56 | binary.BigEndian.Uint64(form[:8])>>8, binary.BigEndian.Uint64(form[7:])}
}

// uriKey returns the key of a packed URI whose author's id, or index, has up to 48 bits.
func uriKey(tag uint64, tid uint64, author uint64, collection byte) cacheKey {
	return cacheKey{tag<<56 | uint64(collection)<<48 | author, tid}
}

func rawKey(ns dict.Namespace, s []byte) cacheKey {
	sum := sha256.Sum256(s)
	return cacheKey{(tagRaw+uint64(ns))<<56 | binary.BigEndian.Uint64(sum[:])>>8, binary.BigEndian.Uint64(sum[8:])}
}

// Reset empties the batch. It loses the ids that were drawn for the batch, if neither
// Committed nor Abandon was called.
func (b *Batch) Reset() {
	for i := range b.checkouts {
		if len(b.checkouts[i].out) > 0 {
			b.checkouts[i] = checkout{}
		}
	}
	b.arena, b.items = b.arena[:0], b.items[:0]
	clear(b.slots)
}

// Retry begins another attempt at a transaction. The strings that the last one created may
// have been discarded, and are looked up again. A string keeps the id that was drawn for it,
// in case the store has none.
func (b *Batch) Retry() {
	for i := range b.items {
		if it := &b.items[i]; it.state == created {
			it.state = unresolved
		}
	}
}

// partition returns the partition from whose shards an item's id is drawn.
func (b *Batch) partition(s dict.Settings, it *batchItem) uint8 {
	if it.ns != dict.DID || s.Partitions == 1 {
		return 0
	}
	if it.key.hi>>56 != tagDID {
		return s.PartitionOf(b.arena[it.start : it.start+uint32(it.len)])
	}
	var form [dict.PackedDIDLen + 1]byte
	return s.PartitionOfForm(b.appendForm(form[:0], it))
}

// Add adds s, which must be valid in ns, and returns its index. Equal strings have the same
// index. Add copies s.
func (b *Batch) Add(ns dict.Namespace, s []byte) int {
	if ns == dict.URI {
		if p, ok := dict.SplitURI(s); ok {
			author := b.Add(dict.DID, p.Author)
			it := batchItem{tid: p.TID, author: int32(author), collection: p.Collection, ns: dict.URI}
			it.key = uriKey(tagUnsettled, p.TID, uint64(author), p.Collection)
			i, _ := b.put(it)
			return i
		}
		if did, ok := dict.AuthorOf(s); ok {
			b.Add(dict.DID, did)
		}
	} else {
		var form [dict.PackedDIDLen]byte
		if v, ok := dict.PackPLC(form[:0], s); ok {
			i, _ := b.put(batchItem{key: didKey(v), author: noAuthor, ns: dict.DID})
			return i
		}
	}
	i, isNew := b.put(batchItem{key: rawKey(ns, s), author: noAuthor, ns: ns, start: uint32(len(b.arena)), len: uint16(len(s))})
	if isNew {
		b.arena = append(b.arena, s...)
	}
	return i
}

// put returns the index of the item with the key of it. If there is none, it adds it.
func (b *Batch) put(it batchItem) (index int, isNew bool) {
	if 4*(len(b.items)+1) > 3*len(b.slots) {
		b.grow()
	}
	mask := uint64(len(b.slots) - 1)
	i := it.key.hash(&tableKey) & mask
	for ; b.slots[i] != 0; i = (i + 1) & mask {
		if b.items[b.slots[i]-1].key == it.key {
			return int(b.slots[i] - 1), false
		}
	}
	b.items = append(b.items, it)
	b.slots[i] = uint32(len(b.items))
	return len(b.items) - 1, true
}

func (b *Batch) grow() {
	b.slots = make([]uint32, max(1024, 2*len(b.slots)))
	mask := uint64(len(b.slots) - 1)
	for n := range b.items {
		i := b.items[n].key.hash(&tableKey) & mask
		for b.slots[i] != 0 {
			i = (i + 1) & mask
		}
		b.slots[i] = uint32(n + 1)
	}
}

// ID returns the id of the i-th string. It is None before the string is resolved, and after a
// Lookup that found no id.
func (b *Batch) ID(i int) dict.ID {
	if b.items[i].state == unresolved {
		return dict.None
	}
	return b.items[i].id
}

// Made reports whether the i-th string got its id in the transaction under way, so the store
// cannot have any data about it yet.
func (b *Batch) Made(i int) bool { return b.items[i].state == created || b.items[i].claimed }

// settled returns the key of an item in the cache. The author of a packed URI must have its
// id.
func (b *Batch) settled(it *batchItem) cacheKey {
	if it.author == noAuthor {
		return it.key
	}
	author := b.items[it.author].id
	if author >= 1<<48 {
		return rawKey(dict.URI, dict.AppendPackedURI(nil, it.tid, author, it.collection))
	}
	return uriKey(tagURI, it.tid, uint64(author), it.collection)
}

// appendForm appends the form in which the dictionary stores an item's string. The author of a
// packed URI must have its id.
func (b *Batch) appendForm(dst []byte, it *batchItem) []byte {
	switch {
	case it.author != noAuthor:
		return dict.AppendPackedURI(dst, it.tid, b.items[it.author].id, it.collection)
	case it.key.hi>>56 == tagDID:
		dst = binary.BigEndian.AppendUint64(dst, it.key.hi<<8|it.key.lo>>56)
		return binary.BigEndian.AppendUint64(dst, it.key.lo<<8)[:len(dst)+7]
	}
	return dict.AppendRaw(dst, it.ns, b.arena[it.start:it.start+uint32(it.len)])
}

// missing collects the keys of a namespace's unresolved items in b.keys: first those to look
// up, whose number it returns, then those that isNew knows to be new. It skips the URIs of
// authors without an id, because they cannot have one either.
func (b *Batch) missing(ns dict.Namespace, isNew func(*Batch, *batchItem) bool) (asked int) {
	b.keys, b.miss, b.kbuf, b.fresh = b.keys[:0], b.miss[:0], b.kbuf[:0], b.fresh[:0]
	for i := range b.items {
		it := &b.items[i]
		if it.ns != ns || it.state != unresolved || it.author != noAuthor && b.ID(int(it.author)) == dict.None {
			continue
		}
		if isNew != nil && isNew(b, it) {
			b.fresh = append(b.fresh, int32(i))
			continue
		}
		b.want(ns, i)
	}
	asked = len(b.keys)
	for _, i := range b.fresh {
		b.want(ns, int(i))
	}
	return asked
}

// want collects the key of an item.
func (b *Batch) want(ns dict.Namespace, i int) {
	start := len(b.kbuf)
	b.kbuf = b.appendForm(append(b.kbuf, dict.KeyID, byte(ns)), &b.items[i])
	// If kbuf grows, earlier keys stay in the old array.
	b.keys = append(b.keys, b.kbuf[start:len(b.kbuf):len(b.kbuf)])
	b.miss = append(b.miss, int32(i))
}

// lookUp finds the ids of the items of the first keys that missing has collected.
func (b *Batch) lookUp(r kv.Reader, asked int) error {
	return r.MultiGet(b.keys[:asked], func(i int, value []byte, ok bool) error {
		if !ok {
			return nil
		}
		return b.items[b.miss[i]].found(b.keys[i], value)
	})
}

// found sets the id that the store has for an item, in the row of its string. If that is the id drawn for the item, an
// attempt of unknown outcome was committed.
func (it *batchItem) found(key, value []byte) error {
	id, err := idIn(key, value)
	if err != nil {
		return err
	}
	if it.state = stored; it.id == id {
		it.state = created
	}
	it.id = id
	return nil
}
