package repo

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// What a Reader allocates, in bytes. Nothing is ever copied to grow but the buffer, and
// little is allocated ahead of need, so that a CAR of tiny blocks takes no more memory
// than its own size (TestAbuseKept).
const (
	bufferLen = 64 << 10
	chunkLen  = 64 << 10     // of the arena; the positions in it fit into 16 bits
	alone     = chunkLen / 4 // a longer block has a chunk of its own
	pageLen   = 2048         // blocks in a page of the table
	blockSize = 24           // of a block
	slotSize  = 4
	minSlots  = 1024
	// ownBytes is what each Reader has besides Memory, and keeps after Release.
	ownBytes = 256 << 10
	ownPages = 2
	ownSlots = 4096
)

// blockTable has the blocks of a CAR: which there are, and the bytes of those that are kept.
type blockTable struct {
	chunks  [][]byte // the arena
	spare   [][]byte // chunks of chunkLen that are empty
	filling int      // index of the chunk that short blocks go into, -1 if there is none
	stored  int      // bytes of the blocks that are kept
	pages   []*[pageLen]block
	n       int      // blocks
	slots   []uint32 // 1 + index of the block, by its id
}

// block is one of the CAR.
type block struct {
	id    blockID
	chunk uint32 // 1 + index of the chunk, 0 if the block is not kept
	at    uint16 // where it begins there
	len   uint16 // 0: it is the whole chunk
}

// blockID is the first half of a block's digest. Nobody finds two blocks with the same
// 128 bits; who did would spoil his own repo alone.
type blockID struct{ a, b uint64 }

func idOf(digest []byte) blockID {
	return blockID{binary.LittleEndian.Uint64(digest), binary.LittleEndian.Uint64(digest[8:])}
}

// hashKeys make the places of blocks in the table such as no sender can foresee: it is
// easy to find blocks whose digests begin alike.
var hashKeys = [2]uint64{rand.Uint64(), rand.Uint64()}

func (id blockID) hash() uint32 {
	hi, lo := bits.Mul64(id.a^hashKeys[0], id.b^hashKeys[1])
	return uint32(hi ^ lo)
}

func (t *blockTable) block(i int) *block { return &t.pages[i/pageLen][i%pageLen] }

// slot returns where a block is, or is to be, in the slots, and its index, -1 if it is not
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

// data returns the bytes of a block, nil if it is not kept.
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

// find returns a block. data is nil if it was there and is not kept.
func (t *blockTable) find(digest []byte) (data []byte, found bool) {
	index := t.index(digest)
	if index < 0 {
		return nil, false
	}
	return t.data(index), true
}

// add adds a block, and the bytes of one that is kept. Some hosts send a block twice: the
// second is passed over.
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
	if len(data) > 0 && r.isKept(sum, data) {
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
	r.slots = nil // the collector may have them before the new ones are made
	r.slots = make([]uint32, n)
	for i := range r.n {
		slot, _ := r.slot(r.block(i).id)
		r.slots[slot] = uint32(i + 1)
	}
	return nil
}

// store keeps the bytes of a block.
func (r *Reader) store(ctx context.Context, b *block, data []byte) error {
	r.stored += len(data)
	if len(data) > alone {
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

// grow accounts for n more bytes, and waits for room for them.
func (r *Reader) grow(ctx context.Context, n int) error {
	if over := int64(r.kept+n-ownBytes) - r.lease.shared - r.lease.own; over > 0 && r.Memory != nil {
		if err := r.Memory.take(ctx, &r.lease, over); err != nil {
			return err
		}
	}
	r.kept += n
	return nil
}

// clearBlocks empties the table for another CAR.
func (r *Reader) clearBlocks() {
	for _, c := range r.chunks {
		if cap(c) == chunkLen {
			r.spare = append(r.spare, c[:0])
		} else {
			r.kept -= len(c)
		}
	}
	clear(r.chunks)
	r.chunks, r.filling, r.stored, r.n = r.chunks[:0], -1, 0, 0
	clear(r.slots)
}

// Release gives back the memory of the repo that was read last, but for a little that the
// next one begins with. What DID, Rev and Data say, and what Walk finds, ends with it.
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
	r.kept = len(r.spare)*chunkLen + len(r.pages)*pageLen*blockSize + len(r.slots)*slotSize + len(r.buf)
	if r.Memory != nil {
		r.Memory.give(&r.lease)
	}
}
