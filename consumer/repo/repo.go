// Package repo reads a repo that was exported whole, a CAR as com.atproto.sync.getRepo
// sends it, into the records of the indexed collections.
//
// The CAR is read as a stream, its blocks in whatever order they come, each checked
// against the hash that its CID names. Kept of it are the nodes of the tree (the MST) and
// the records that may be of an indexed collection; of the others, that they were there.
// Then one walk over the tree finds the records by their paths, in their order.
//
// What a host sends is not trusted. How much is read is bounded, and so is how much all
// Readers together keep (Memory). The work is linear in the bytes of the CAR, however its
// tree and its keys are made. Whatever does not fit together is an error. Signatures are
// not verified.
//
// indigo's repo and mst packages are the oracle of the tests, and what the speed is
// measured against (BenchmarkRead).
package repo

import (
	"bytes"
	"context"
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
	errOrder = fmt.Errorf("%w: its keys are out of order", ErrTree)
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
	// Memory bounds what this Reader and others keep. It is set before the first Read; nil
	// means that nothing does.
	Memory *Memory
	// Malformed counts the records of indexed collections that the last Walk found to name
	// no subject, and Spaces those whose subject is in a space, which is not indexed.
	Malformed, Spaces int
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

	blockTable
	kept  int // bytes that are allocated
	lease lease
	walk  walk
	root  [digestLen]byte
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

// Read reads a CAR to its end, of so many bytes at most. ctx ends the wait for memory;
// what ends the reading is in itself.
func (r *Reader) Read(ctx context.Context, in io.Reader, most int64) error {
	r.reset(in, most)
	if t := r.table(); r.keptOf != t {
		r.keep, r.keptOf = keepable(t), t
	}
	root, err := r.header(ctx)
	if err != nil {
		return err
	}
	copy(r.root[:], root[len(cidPrefix):])
	for {
		section, err := r.section(ctx, maxBlock)
		if errors.Is(err, io.EOF) {
			return r.commit()
		}
		if err != nil {
			return err
		}
		if err := r.take(ctx, section); err != nil {
			return err
		}
	}
}

// maxKept is what a Reader keeps from one repo to the next without Release.
const maxKept = 8 << 20

func (r *Reader) reset(in io.Reader, most int64) {
	if r.kept > maxKept {
		r.Release()
	}
	r.in, r.left, r.start, r.end, r.Malformed, r.Spaces = in, most, 0, 0, 0, 0
	r.DID, r.Rev, r.Data, r.Tolerate = nil, nil, nil, 0
	r.clearBlocks()
	r.walk.forget(r)
}

// fill has n bytes in the buffer, unless the stream ends before.
func (r *Reader) fill(ctx context.Context, n int) error {
	for r.end-r.start < n {
		if r.start+n > len(r.buf) {
			if err := r.makeRoom(ctx, n); err != nil {
				return err
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

// makeRoom makes room in the buffer for n bytes, or for some of them: it grows with what
// has come, since a host may announce a large block and never send it.
func (r *Reader) makeRoom(ctx context.Context, n int) error {
	r.end = copy(r.buf, r.buf[r.start:r.end])
	r.start = 0
	if r.end < len(r.buf) {
		return nil
	}
	size := max(bufferLen, min(2*len(r.buf), n))
	if err := r.grow(ctx, size-len(r.buf)); err != nil {
		return err
	}
	bigger := make([]byte, size)
	copy(bigger, r.buf[:r.end])
	r.buf = bigger
	return nil
}

// section returns the next section of the CAR, valid until the next call; io.EOF at its
// end.
func (r *Reader) section(ctx context.Context, most uint64) ([]byte, error) {
	err := r.fill(ctx, 1)
	if err != nil {
		return nil, err
	}
	n, width := uint64(r.buf[r.start]), 1
	if n >= 0x80 {
		if err := r.fill(ctx, binary.MaxVarintLen64); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n, width = binary.Uvarint(r.buf[r.start:r.end]); width <= 0 {
			return nil, fmt.Errorf("%w: the length of a block is malformed", ErrTruncated)
		}
	}
	if n > most {
		return nil, fmt.Errorf("%w: a block of %d bytes", ErrCAR, n)
	}
	if err := r.fill(ctx, width+int(n)); err != nil {
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
func (r *Reader) header(ctx context.Context) (root []byte, err error) {
	head, err := r.section(ctx, maxHeader)
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

// take checks a block, and keeps it if it may be needed.
func (r *Reader) take(ctx context.Context, section []byte) error {
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
	return r.add(ctx, &sum, section[cidLen:])
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
