package repo

import "context"

// Allocations of a Reader, in bytes. Little is allocated in advance, so a CAR of tiny blocks needs no more
// memory than some times its own size (TestAbuseKept).
const (
	bufferLen = 16 << 10
	chunkLen  = 64 << 10
	blockSize = 96   // of a block in the map, just after the map has grown
	moreRoom  = 1024 // blocks for which memory is taken at a time
	// ownBytes is what each Reader may have besides Memory.
	ownBytes = 256 << 10
)

// blockTable has the blocks of a CAR: the ids of all, and the bytes of the stored ones.
type blockTable struct {
	blocks map[blockID][]byte // nil: bytes not stored
	room   int                // blocks for which memory is taken
	chunk  []byte             // the last one of those that have the bytes
}

// Blocks returns how many blocks the CAR has.
func (t *blockTable) Blocks() int { return len(t.blocks) }

// blockID is the first half of a block's digest. Nobody can find two blocks with the same
// 128 bits, and a sender who did would spoil only its own repo.
type blockID = [16]byte

// find returns a block. data is nil if its bytes are not stored.
func (t *blockTable) find(digest *[digestLen]byte) (data []byte, found bool) {
	data, found = t.blocks[blockID(digest[:])]
	return data, found
}

// add adds a block, and stores its bytes if they may be needed. Some hosts send a block
// twice; add ignores the second.
func (r *Reader) add(ctx context.Context, sum *[digestLen]byte, data []byte) (err error) {
	id := blockID(sum[:])
	if _, found := r.blocks[id]; found {
		return nil
	}
	if len(r.blocks) == r.room {
		if err := r.grow(ctx, moreRoom*blockSize); err != nil {
			return err
		}
		r.room += moreRoom
	}
	var stored []byte
	if len(data) > 0 && r.mayNeed(sum, data) {
		if stored, err = r.store(ctx, data); err != nil {
			return err
		}
	}
	r.blocks[id] = stored
	return nil
}

// store stores the bytes of a block.
func (r *Reader) store(ctx context.Context, data []byte) ([]byte, error) {
	if len(data) > cap(r.chunk)-len(r.chunk) {
		size := max(chunkLen, len(data))
		if err := r.grow(ctx, size); err != nil {
			return nil, err
		}
		r.chunk = make([]byte, 0, size)
	}
	at := len(r.chunk)
	r.chunk = append(r.chunk, data...)
	return r.chunk[at:len(r.chunk):len(r.chunk)], nil
}

// grow accounts for n more bytes, and waits until Memory has room for them.
func (r *Reader) grow(ctx context.Context, n int) error {
	if over := int64(r.allocated+n-ownBytes) - r.lease.shared - r.lease.own; over > 0 {
		if err := r.Memory.take(ctx, &r.lease, over); err != nil {
			return err
		}
	}
	r.allocated += n
	return nil
}

// Release ends the use of the Reader, and gives its memory back.
func (r *Reader) Release() {
	r.Memory.give(&r.lease)
	*r = Reader{}
}
