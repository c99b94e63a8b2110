// Package repo reads a repo that was exported whole, a CAR as com.atproto.sync.getRepo
// sends it, into the records of the indexed collections.
//
// The CAR is read as a stream, its blocks in whatever order they come, each checked
// against the hash that its CID names. Kept of it are the nodes of the tree (the MST) and
// the records that may be of an indexed collection; of the others, that they were there.
// Then one walk over the tree finds the records by their paths, in their order.
//
// What a host sends is not trusted: how much is read, and kept, is bounded, and whatever
// does not fit together is an error. Signatures are not verified.
//
// indigo's repo and mst packages are the oracle of the tests, and what the speed is
// measured against (BenchmarkRead).
package repo

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"skein.blue/graph/kinds"
	"skein.blue/internal/cbor"
	"skein.blue/internal/syntax"
)

// What may be wrong with a CAR.
var (
	ErrCAR       = errors.New("not a repo's CAR")
	ErrTruncated = errors.New("the CAR is cut short")
	ErrTooLarge  = errors.New("the repo is larger than is allowed")
	ErrHash      = errors.New("a block is not what its CID says")
	ErrMissing   = errors.New("a block is missing")
	ErrTree      = errors.New("the tree is malformed")
	ErrCommit    = errors.New("the commit is malformed")
)

var (
	errNode  = fmt.Errorf("%w: a node", ErrTree)
	errEntry = fmt.Errorf("%w: an entry", ErrTree)
)

const (
	digestLen = 32
	cidLen    = 4 + digestLen
	maxHeader = 4096
	maxBlock  = 4 << 20 // a record has 1 MiB at most, and nodes of the tree some KiB
	maxDepth  = 256     // of the tree: SHA-256 has no more bits
)

// cidPrefix is what a CID of this protocol begins with: version 1, dag-cbor, SHA-256.
const cidPrefix = "\x01\x71\x12\x20"

// rawPrefix is that of a blob, which may be in a CAR and is not looked at.
const rawPrefix = "\x01\x55\x12\x20"

// A Reader reads one repo after another. Its memory is reused. It is for one goroutine.
type Reader struct {
	// DID, Rev and Data say what was read: of which account, at which rev, and the digest
	// of the tree's root. They are valid until the next Read.
	DID, Rev, Data []byte
	// Kinds is what is indexed, and set before Read; nil means what is built in.
	Kinds *kinds.Table
	// Malformed counts the records of indexed collections that name no subject.
	Malformed int
	// Tolerate is how many records' blocks may be missing: such records name no subject.
	// The reference PDS loses some of a repo that was imported over a newer one. It is set
	// before Walk, and 0 after Read.
	Tolerate int

	keep   [][]byte     // what a record that is kept has one of
	keptOf *kinds.Table // for which

	in    io.Reader
	left  int64 // bytes that may still be read
	buf   []byte
	start int
	end   int

	arena  []byte // the blocks that are kept
	blocks []block
	slots  []uint32 // 1 + index of blocks, by the digest
	walk   walk
	root   [digestLen]byte
}

// block is one of the CAR.
type block struct {
	digest [digestLen]byte
	at     uint32 // in the arena
	len    uint32 // 0: it is not kept
}

// keepable returns the CBOR text of the first fields of subjects: a record without any of
// them names none.
func keepable(t *kinds.Table) (keys [][]byte) {
	for i := range t.All {
		field := t.All[i].To.Field[0]
		key := append([]byte{cbor.Text<<5 | byte(len(field))}, field...) // they are short: see kinds.Parse
		if !containsKey(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// table returns what is indexed.
func (r *Reader) table() *kinds.Table {
	if r.Kinds == nil {
		r.Kinds = kinds.BuiltIn
	}
	return r.Kinds
}

func containsKey(keys [][]byte, key []byte) bool {
	for _, k := range keys {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// Read reads a CAR to its end, of so many bytes at most.
func (r *Reader) Read(in io.Reader, most int64) error {
	r.reset(in, most)
	if t := r.table(); r.keptOf != t {
		r.keep, r.keptOf = keepable(t), t
	}
	root, err := r.header()
	if err != nil {
		return err
	}
	copy(r.root[:], root[len(cidPrefix):])
	for {
		section, err := r.section(maxBlock)
		if errors.Is(err, io.EOF) {
			return r.commit()
		}
		if err != nil {
			return err
		}
		if err := r.block(section); err != nil {
			return err
		}
	}
}

const maxKept = 8 << 20

func (r *Reader) reset(in io.Reader, most int64) {
	r.in, r.left, r.start, r.end, r.Malformed = in, most, 0, 0, 0
	r.DID, r.Rev, r.Data, r.Tolerate = nil, nil, nil, 0
	if cap(r.arena)+cap(r.blocks)*44+cap(r.slots)*4 > maxKept {
		r.arena, r.blocks, r.slots = nil, nil, nil
	}
	r.arena, r.blocks = r.arena[:0], r.blocks[:0]
	clear(r.slots)
}

// fill has n bytes in the buffer, unless the stream ends before.
func (r *Reader) fill(n int) error {
	for r.end-r.start < n {
		if r.start+n > len(r.buf) {
			if n > len(r.buf) {
				bigger := make([]byte, max(64<<10, 2*n))
				copy(bigger, r.buf[r.start:r.end])
				r.buf, r.end, r.start = bigger, r.end-r.start, 0
			} else {
				r.end = copy(r.buf, r.buf[r.start:r.end])
				r.start = 0
			}
		}
		if r.left <= 0 {
			// Whether the stream goes on tells a repo that is too large from one that ends.
			if k, err := r.in.Read(r.buf[r.end : r.end+1]); k > 0 {
				return ErrTooLarge
			} else if err != nil {
				return err //nolint:wrapcheck // io.EOF, or what failed below
			}
			continue
		}
		room := r.buf[r.end:]
		if int64(len(room)) > r.left {
			room = room[:r.left]
		}
		k, err := r.in.Read(room)
		r.end += k
		r.left -= int64(k)
		if err != nil && r.end-r.start < n {
			return err //nolint:wrapcheck // io.EOF, or what failed below
		}
	}
	return nil
}

// section returns the next section of the CAR, valid until the next call; io.EOF at its
// end.
func (r *Reader) section(most uint64) ([]byte, error) {
	err := r.fill(1)
	if err != nil {
		return nil, err
	}
	n, width := uint64(r.buf[r.start]), 1
	if n >= 0x80 {
		if err := r.fill(binary.MaxVarintLen64); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n, width = binary.Uvarint(r.buf[r.start:r.end]); width <= 0 {
			return nil, fmt.Errorf("%w: the length of a block is malformed", ErrTruncated)
		}
	}
	if n > most {
		return nil, fmt.Errorf("%w: a block of %d bytes", ErrCAR, n)
	}
	if err := r.fill(width + int(n)); err != nil {
		if errors.Is(err, io.EOF) { // io.ErrUnexpectedEOF is a connection's that broke
			return nil, ErrTruncated
		}
		return nil, err
	}
	s := r.buf[r.start+width : r.start+width+int(n)]
	r.start += width + int(n)
	return s, nil
}

// header reads the header and returns the CID of the commit.
func (r *Reader) header() (root []byte, err error) {
	head, err := r.section(maxHeader)
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it is empty", ErrTruncated)
	}
	if err != nil {
		return nil, err
	}
	c := cbor.Cursor{B: head}
	version := uint64(0)
	for range c.Count(cbor.Map) {
		switch string(c.Text()) {
		case "version":
			version = c.Uint()
		case "roots":
			for i := range c.Count(cbor.Array) {
				if cid := c.Link(); i == 0 {
					root = cid
				}
			}
		default:
			c.Skip()
		}
	}
	if c.Bad || version != 1 || len(root) != cidLen || string(root[:len(cidPrefix)]) != cidPrefix {
		return nil, fmt.Errorf("%w: its header is malformed", ErrCAR)
	}
	return root, nil
}

// block checks a block, and keeps it if it may be needed.
func (r *Reader) block(section []byte) error {
	if len(section) < cidLen || string(section[:len(cidPrefix)]) != cidPrefix {
		if len(section) >= cidLen && string(section[:len(rawPrefix)]) == rawPrefix {
			return nil
		}
		return fmt.Errorf("%w: a CID that this protocol does not have", ErrCAR)
	}
	sum := sha256.Sum256(section[cidLen:])
	if string(sum[:]) != string(section[len(cidPrefix):cidLen]) {
		return ErrHash
	}
	data := section[cidLen:]
	b := block{digest: sum}
	if r.isKept(&sum, data) {
		if uint64(len(r.arena))+uint64(len(data)) >= 1<<32 {
			return ErrTooLarge
		}
		b.at, b.len = uint32(len(r.arena)), uint32(len(data))
		r.arena = append(r.arena, data...)
	}
	r.add(&b)
	return nil
}

// isKept reports whether a block may be a node of the tree, the commit, or a record that
// names a subject.
func (r *Reader) isKept(sum *[digestLen]byte, data []byte) bool {
	if len(data) > 3 && data[0] == cbor.Map<<5|2 && data[1] == cbor.Text<<5|1 && data[2] == 'e' || *sum == r.root {
		return true
	}
	for _, key := range r.keep {
		if bytes.Contains(data, key) {
			return true
		}
	}
	return false
}

// slot returns where a digest is, or is to be, in the table.
func (r *Reader) slot(digest []byte) (slot uint32, index int) {
	mask := uint32(len(r.slots) - 1)
	for slot = binary.LittleEndian.Uint32(digest) & mask; r.slots[slot] != 0; slot = (slot + 1) & mask {
		if index = int(r.slots[slot]) - 1; string(r.blocks[index].digest[:]) == string(digest) {
			return slot, index
		}
	}
	return slot, -1
}

func (r *Reader) add(b *block) {
	if 2*(len(r.blocks)+1) > len(r.slots) {
		r.slots = make([]uint32, max(1024, 2*len(r.slots)))
		for i := range r.blocks {
			slot, _ := r.slot(r.blocks[i].digest[:])
			r.slots[slot] = uint32(i + 1)
		}
	}
	slot, index := r.slot(b.digest[:])
	if index >= 0 {
		return // some hosts send a block twice
	}
	r.blocks = append(r.blocks, *b)
	r.slots[slot] = uint32(len(r.blocks))
}

// find returns a block. data is nil if it was there and is not kept.
func (r *Reader) find(digest []byte) (data []byte, found bool) {
	if len(r.slots) == 0 {
		return nil, false
	}
	_, index := r.slot(digest)
	if index < 0 {
		return nil, false
	}
	b := &r.blocks[index]
	if b.len == 0 {
		return nil, true
	}
	return r.arena[b.at : b.at+b.len : b.at+b.len], true
}

// commit reads the commit.
func (r *Reader) commit() error {
	data, ok := r.find(r.root[:])
	if !ok {
		return fmt.Errorf("%w: the commit", ErrMissing)
	}
	c := cbor.Cursor{B: data}
	version := uint64(0)
	var root []byte
	for range c.Count(cbor.Map) {
		switch string(c.Text()) {
		case "did":
			r.DID = c.Text()
		case "rev":
			r.Rev = c.Text()
		case "data":
			root = c.Link()
		case "version":
			version = c.Uint()
		default:
			c.Skip()
		}
	}
	if c.Bad || c.I != len(data) || version != 3 || !isCID(root) || !syntax.ValidDID(r.DID) || !syntax.ValidTID(r.Rev) {
		r.DID, r.Rev = nil, nil
		return ErrCommit
	}
	r.Data = root[len(cidPrefix):]
	return nil
}

func isCID(cid []byte) bool { return len(cid) == cidLen && string(cid[:len(cidPrefix)]) == cidPrefix }
