package archive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"
)

// A segment is a file of an archive (jetstream, docs/README.md, 3.1.2):
//
//	header      256 bytes: "jss0", checksum(8), version(2), blocks(4), events(4), DIDs(4),
//	            min and max seq(8, 8), min and max witnessed_at(8, 8), and the offsets of
//	            the footer and of its four parts(8 each), little-endian; the rest is 0
//	blocks      each its length(8), and a zstd frame of that length
//	footer      an index of the blocks, Bloom filters of the DIDs, an index of the
//	            collections: not needed to read the whole segment
//
// The checksum is XXH3 of the header from the version on, and of the footer; the blocks
// have zstd's own. A segment with checksum 0 is still being written.
const (
	headerLen = 256
	magic     = "jss0"
	version   = 1
)

// ErrSegment means that a segment is malformed.
var ErrSegment = errors.New("malformed segment")

// header has the fields of a segment's header that the Reader uses.
type header struct {
	checksum uint64
	blocks   uint32
	footer   uint64 // its offset
}

func readHeader(b []byte) (h header, err error) {
	if len(b) < headerLen || string(b[:4]) != magic {
		return h, fmt.Errorf("%w: does not begin with %q", ErrSegment, magic)
	}
	le := binary.LittleEndian
	h = header{checksum: le.Uint64(b[4:]), blocks: le.Uint32(b[14:]), footer: le.Uint64(b[58:])}
	switch v := le.Uint16(b[12:]); {
	case h.checksum == 0:
		return h, fmt.Errorf("%w: still being written", ErrSegment)
	case v != version:
		return h, fmt.Errorf("%w: version %d; this program reads version %d", ErrSegment, v, version)
	case h.footer < headerLen || h.footer > uint64(len(b)):
		return h, fmt.Errorf("%w: the header places the footer at %d of %d bytes", ErrSegment, h.footer, len(b))
	}
	return h, nil
}

// frames checks a whole segment's checksum and returns its zstd frames, as slices of b.
func frames(b []byte) (h header, all [][]byte, err error) {
	if h, err = readHeader(b); err != nil {
		return h, nil, err
	}
	sum := xxh3.New()
	_, _ = sum.Write(b[12:headerLen])
	_, _ = sum.Write(b[h.footer:])
	if got := sum.Sum64(); got != h.checksum {
		return h, nil, fmt.Errorf("%w: checksum %016x, the header says %016x", ErrSegment, got, h.checksum)
	}
	for rest := b[headerLen:h.footer]; len(rest) > 0; {
		if len(rest) < 8 || binary.LittleEndian.Uint64(rest) > uint64(len(rest)-8) {
			return h, nil, fmt.Errorf("%w: a block is longer than the rest of the segment", ErrSegment)
		}
		n := binary.LittleEndian.Uint64(rest)
		all = append(all, rest[8:8+n])
		rest = rest[8+n:]
	}
	if len(all) != int(h.blocks) {
		return h, nil, fmt.Errorf("%w: %d blocks, the header says %d", ErrSegment, len(all), h.blocks)
	}
	return h, all, nil
}

// A kind is the type of a row.
type kind uint8

const (
	create kind = 1 + iota
	update
	remove
	identity
	account
	sync
	createResync // a record of a refetched repo, after its sync
)

// block is an unpacked block of rows. Its columns are in one buffer: first those of fixed
// width, then the strings, concatenated.
type block struct {
	buf  []byte
	rows int
	row  int

	seq, witnessed, kinds, collectionLen, didLen, rkeyLen, revLen, payloadLen []byte
	collections, dids, rkeys, revs, payloads                                  []byte
}

// row is a row of a block. Its slices point into the block.
type row struct {
	seq                                 int64
	kind                                kind
	collection, did, rkey, rev, payload []byte
}

const (
	// maxRows bounds the row count that a block may claim; the format has the same bound.
	maxRows = 1 << 18
	// maxBlock bounds the unpacked size of a block: 4,096 records of 64 KiB.
	maxBlock = 256 << 20
)

// newDecoder returns a decoder of frames, for one goroutine.
func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		panic(err) // the options are wrong
	}
	return d
}

// unpack unpacks a frame. It reuses the memory of the previous block.
func (b *block) unpack(d *zstd.Decoder, frame []byte) (err error) {
	if b.buf, err = d.DecodeAll(frame, b.buf[:0]); err != nil {
		return fmt.Errorf("%w: unpacking a block: %w", ErrSegment, err)
	}
	return b.parse()
}

var errColumns = fmt.Errorf("%w: wrong columns in a block", ErrSegment)

// parse finds the columns.
func (b *block) parse() error {
	b.rows, b.row = 0, 0
	const fixed = 8 + 8 + 8 + 1 + 1 + 2 + 1 + 1 + 4
	rest := b.buf
	if len(rest) < 4 {
		return errColumns
	}
	n := int(binary.LittleEndian.Uint32(rest))
	rest = rest[4:]
	if n > maxRows || n*fixed > len(rest) {
		return errColumns
	}
	column := func(width int) []byte {
		c := rest[: n*width : n*width]
		rest = rest[n*width:]
		return c
	}
	b.seq, b.witnessed = column(8), column(8)
	column(8) // indexed_at
	b.kinds, b.collectionLen, b.didLen, b.rkeyLen, b.revLen, b.payloadLen = column(1), column(1), column(2), column(1), column(1), column(4)
	total := [5]int{}
	for i := range n {
		total[0] += int(b.collectionLen[i])
		total[1] += int(binary.LittleEndian.Uint16(b.didLen[2*i:]))
		total[2] += int(b.rkeyLen[i])
		total[3] += int(b.revLen[i])
		total[4] += int(binary.LittleEndian.Uint32(b.payloadLen[4*i:]))
	}
	for i, to := range []*[]byte{&b.collections, &b.dids, &b.rkeys, &b.revs, &b.payloads} {
		if total[i] > len(rest) {
			return errColumns
		}
		*to, rest = rest[:total[i]:total[i]], rest[total[i]:]
	}
	if len(rest) > 0 {
		return errColumns
	}
	b.rows = n
	return nil
}

// next reads the next row.
func (b *block) next(r *row) bool {
	i := b.row
	if i == b.rows {
		return false
	}
	b.row++
	cut := func(column *[]byte, n int) []byte {
		s := (*column)[:n:n]
		*column = (*column)[n:]
		return s
	}
	r.seq = int64(binary.LittleEndian.Uint64(b.seq[8*i:]))
	r.kind = kind(b.kinds[i])
	r.collection = cut(&b.collections, int(b.collectionLen[i]))
	r.did = cut(&b.dids, int(binary.LittleEndian.Uint16(b.didLen[2*i:])))
	r.rkey = cut(&b.rkeys, int(b.rkeyLen[i]))
	r.rev = cut(&b.revs, int(b.revLen[i]))
	r.payload = cut(&b.payloads, int(binary.LittleEndian.Uint32(b.payloadLen[4*i:])))
	return true
}

// lastWitnessed returns when the archive saw the last row, in microseconds since 1970, 0
// if there is no row.
func (b *block) lastWitnessed() int64 {
	if b.rows == 0 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b.witnessed[8*(b.rows-1):]))
}
