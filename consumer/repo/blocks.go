package repo

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// Allocations of a Reader, in bytes. Only the buffer is ever copied to grow, and little is
// allocated in advance, so a CAR of tiny blocks needs no more memory than its own size
// (TestAbuseKept).
const (
	bufferLen = 64 << 10
	chunkLen  = 64 << 10     // of the arena; offsets in a chunk fit into 16 bits
	ownChunk  = chunkLen / 4 // a longer block gets its own chunk
	pageLen   = 2048         // blocks in a page of the table
	blockSize = 24           // of a block
	slotSize  = 4
	minSlots  = 1024
	// ownBytes is what each Reader may have besides Memory, and keeps after Release.
	ownBytes = 256 << 10
	ownPages = 2
	ownSlots = 4096
)

// blockTable has the blocks of a CAR: the ids of all, and the bytes of the stored ones.
type blockTable struct {
	chunks  [][]byte // the arena
	spare   [][]byte // empty chunks of chunkLen
	filling int      // index of the chunk for short blocks, -1 if there is none
	stored  int      // bytes of the stored blocks
	pages   []*[pageLen]block
	n       int      // blocks
	slots   []uint32 // 1 + index of the block, hashed by id
}

// block is a block of the CAR.
type block struct {
	id    blockID
	chunk uint32 // 1 + index of the chunk; 0: bytes not stored
	at    uint16 // offset in the chunk
	len   uint16 // 0: the whole chunk
}

// blockID is the first half of a block's digest. Nobody can find two blocks with the same
// 128 bits, and a sender who did would spoil only its own repo.
type blockID struct{ a, b uint64 }

func idOf(digest []byte) blockID {
	return blockID{binary.LittleEndian.Uint64(digest), binary.LittleEndian.Uint64(digest[8:])}
}

// hashKeys make the slots of blocks unpredictable for senders: blocks whose digests begin
// alike are easy to find.
var hashKeys = [2]uint64{rand.Uint64(), rand.Uint64()}

func (id blockID) hash() uint32 {
	hi, lo := bits.Mul64(id.a^hashKeys[0], id.b^hashKeys[1])
	return uint32(hi ^ lo)
}

func (t *blockTable) block(i int) *block { return &t.pages[i/pageLen][i%pageLen] }

// slot returns the slot of a block, or the free slot for it, and its index, -1 if it is not
// there.
func (t *blockTable) slot(id blockID) (slot uint32, index int) {
	mask := uint32(len(t.slots) - 1)
	for slot = id.hash() & mask; t.slots[slot] != 0; slot = (slot + 1) & mask {
		if index = int(t.slots[slot]) - 1; t.block(index).id == id {
			return slot, index
		}
	}
	return slot, -1
}

// index returns the index of a block, -1 if it is not there.
func (t *blockTable) index(digest []byte) int {
	if t.n == 0 {
		return -1
	}
	_, index := t.slot(idOf(digest))
	return index
}

// data returns the bytes of a block, nil if they are not stored.
func (t *blockTable) data(index int) []byte {
	b := t.block(index)
	if b.chunk == 0 {
		return nil
	}
	c := t.chunks[b.chunk-1]
	if b.len == 0 {
		return c
	}
	end := int(b.at) + int(b.len)
	return c[b.at:end:end]
}

// find returns a block. data is nil if its bytes are not stored.
func (t *blockTable) find(digest []byte) (data []byte, found bool) {
	index := t.index(digest)
	if index < 0 {
		return nil, false
	}
	return t.data(index), true
}

// add adds a block, and stores its bytes if they may be needed. Some hosts send a block
// twice; add ignores the second.
func (r *Reader) add(ctx context.Context, sum *[digestLen]byte, data []byte) error {
	if 3*(r.n+1) > 2*len(r.slots) {
		if err := r.moreSlots(ctx); err != nil {
			return err
		}
	}
	id := idOf(sum[:])
	slot, index := r.slot(id)
	if index >= 0 {
		return nil
	}
	if r.n == len(r.pages)*pageLen {
		if err := r.grow(ctx, pageLen*blockSize); err != nil {
			return err
		}
		r.pages = append(r.pages, new([pageLen]block))
	}
	b := r.block(r.n)
	*b = block{id: id}
	if len(data) > 0 && r.mayNeed(sum, data) {
		if err := r.store(ctx, b, data); err != nil {
			return err
		}
	}
	r.n++
	r.slots[slot] = uint32(r.n)
	return nil
}

// moreSlots doubles the slots.
func (r *Reader) moreSlots(ctx context.Context) error {
	n := max(minSlots, 2*len(r.slots))
	if err := r.grow(ctx, (n-len(r.slots))*slotSize); err != nil {
		return err
	}
	r.slots = nil // lets the collector free them before the new ones are allocated
	r.slots = make([]uint32, n)
	for i := range r.n {
		slot, _ := r.slot(r.block(i).id)
		r.slots[slot] = uint32(i + 1)
	}
	return nil
}

// store stores the bytes of a block.
func (r *Reader) store(ctx context.Context, b *block, data []byte) error {
	r.stored += len(data)
	if len(data) > ownChunk {
		if err := r.grow(ctx, len(data)); err != nil {
			return err
		}
		own := make([]byte, len(data))
		copy(own, data)
		r.chunks = append(r.chunks, own)
		b.chunk = uint32(len(r.chunks))
		return nil
	}
	if r.filling < 0 || len(r.chunks[r.filling])+len(data) > chunkLen {
		if err := r.nextChunk(ctx); err != nil {
			return err
		}
	}
	c := &r.chunks[r.filling]
	b.chunk, b.at, b.len = uint32(r.filling+1), uint16(len(*c)), uint16(len(data))
	*c = append(*c, data...)
	return nil
}

func (r *Reader) nextChunk(ctx context.Context) error {
	var c []byte
	if n := len(r.spare); n > 0 {
		c, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		if err := r.grow(ctx, chunkLen); err != nil {
			return err
		}
		c = make([]byte, 0, chunkLen)
	}
	r.chunks = append(r.chunks, c)
	r.filling = len(r.chunks) - 1
	return nil
}

// grow accounts for n more bytes, and waits until Memory has room for them.
func (r *Reader) grow(ctx context.Context, n int) error {
	if over := int64(r.allocated+n-ownBytes) - r.lease.shared - r.lease.own; over > 0 && r.Memory != nil {
		if err := r.Memory.take(ctx, &r.lease, over); err != nil {
			return err
		}
	}
	r.allocated += n
	return nil
}

// clearBlocks empties the table for the next CAR.
func (r *Reader) clearBlocks() {
	for _, c := range r.chunks {
		if cap(c) == chunkLen {
			r.spare = append(r.spare, c[:0])
		} else {
			r.allocated -= len(c)
		}
	}
	clear(r.chunks)
	r.chunks, r.filling, r.stored, r.n = r.chunks[:0], -1, 0, 0
	clear(r.slots)
}

// Release frees the memory of the last repo, except a little for the next one. DID, Rev,
// Data and the results of Walk become invalid.
func (r *Reader) Release() {
	r.DID, r.Rev, r.Data, r.in = nil, nil, nil, nil
	r.clearBlocks()
	r.walk.forget(r)
	r.chunks = nil
	if len(r.spare) > 1 {
		r.spare = [][]byte{r.spare[0]}
	}
	if len(r.pages) > ownPages {
		r.pages = append([]*[pageLen]block(nil), r.pages[:ownPages]...)
	}
	if len(r.slots) > ownSlots {
		r.slots = nil
	}
	if len(r.buf) > bufferLen {
		r.buf = nil
	}
	r.allocated = len(r.spare)*chunkLen + len(r.pages)*pageLen*blockSize + len(r.slots)*slotSize + len(r.buf)
	if r.Memory != nil {
		r.Memory.give(&r.lease)
	}
}
