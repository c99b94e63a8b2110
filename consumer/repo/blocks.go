package repo

import (
	"bytes"
	"context"
)

// Allocations of a Reader, in bytes. Only the buffer is ever copied to grow, and little is
// allocated in advance, so a CAR of tiny blocks needs little more memory than its own size
// (TestAbuseKept).
const (
	bufferLen = 16 << 10
	chunkLen  = 64 << 10     // of the arena; offsets in a chunk fit into 16 bits
	ownChunk  = chunkLen / 4 // a longer block gets its own chunk
	blockSize = 60           // of a block in the map, just after the map has grown
	moreRoom  = 1024         // blocks for which memory is taken at a time
	// ownBytes is what each Reader may have besides Memory, and keeps after Release.
	ownBytes  = 256 << 10
	ownBlocks = 2 * moreRoom
)

// blockTable has the blocks of a CAR: the ids of all, and the bytes of the stored ones.
type blockTable struct {
	chunks  [][]byte // the arena
	spare   [][]byte // empty chunks of chunkLen
	filling int      // index of the chunk for short blocks, -1 if there is none
	blocks  map[blockID]block
	room    int // blocks for which memory is taken
}

// Blocks returns how many blocks the CAR has.
func (t *blockTable) Blocks() int { return len(t.blocks) }

// blockID is the first half of a block's digest. Nobody can find two blocks with the same
// 128 bits, and a sender who did would spoil only its own repo.
type blockID = [16]byte

// block is where the bytes of a block are.
type block struct {
	chunk uint32 // 1 + index of the chunk; 0: bytes not stored
	at    uint16 // offset in the chunk
	len   uint16 // 0: the whole chunk
}

// find returns a block. data is nil if its bytes are not stored.
func (t *blockTable) find(digest *[digestLen]byte) (data []byte, found bool) {
	b, found := t.blocks[blockID(digest[:])]
	if b.chunk == 0 {
		return nil, found
	}
	c := t.chunks[b.chunk-1]
	if b.len == 0 {
		return c, true
	}
	end := int(b.at) + int(b.len)
	return c[b.at:end:end], true
}

// add adds a block, and stores its bytes if they may be needed. Some hosts send a block
// twice; add ignores the second.
func (r *Reader) add(ctx context.Context, sum *[digestLen]byte, data []byte) (err error) {
	id := blockID(sum[:])
	if _, found := r.blocks[id]; found {
		return nil
	}
	if r.blocks == nil {
		r.blocks = map[blockID]block{}
	}
	if len(r.blocks) == r.room {
		if err := r.grow(ctx, moreRoom*blockSize); err != nil {
			return err
		}
		r.room += moreRoom
	}
	var b block
	if len(data) > 0 && r.mayNeed(sum, data) {
		if b, err = r.store(ctx, data); err != nil {
			return err
		}
	}
	r.blocks[id] = b
	return nil
}

// store stores the bytes of a block.
func (r *Reader) store(ctx context.Context, data []byte) (b block, err error) {
	if len(data) > ownChunk {
		if err := r.grow(ctx, len(data)); err != nil {
			return b, err
		}
		r.chunks = append(r.chunks, bytes.Clone(data))
		return block{chunk: uint32(len(r.chunks))}, nil
	}
	if r.filling < 0 || len(r.chunks[r.filling])+len(data) > chunkLen {
		if err := r.nextChunk(ctx); err != nil {
			return b, err
		}
	}
	c := &r.chunks[r.filling]
	b = block{uint32(r.filling + 1), uint16(len(*c)), uint16(len(data))}
	*c = append(*c, data...)
	return b, nil
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
	r.chunks, r.filling = r.chunks[:0], -1
	clear(r.blocks)
}

// Release frees the memory of the last repo, except a little for the next one. DID, Rev,
// Data and the results of Walk become invalid.
func (r *Reader) Release() {
	r.DID, r.Rev, r.Data, r.limit.R = nil, nil, nil, nil
	r.clearBlocks()
	r.chunks = nil
	if len(r.spare) > 1 {
		r.spare = [][]byte{r.spare[0]}
	}
	if r.room > ownBlocks {
		r.blocks, r.room = nil, 0
	}
	if cap(r.buf) > bufferLen {
		r.buf = nil
	}
	r.allocated = len(r.spare)*chunkLen + r.room*blockSize + cap(r.buf)
	if r.Memory != nil {
		r.Memory.give(&r.lease)
	}
}
