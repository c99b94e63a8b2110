// Package repo reads an exported repo, a CAR as com.atproto.sync.getRepo sends it, into the
// records of the indexed collections.
//
// It reads the CAR as a stream, with blocks in any order, and checks each block against the
// hash in its CID. It stores the nodes of the tree (the MST) and the records that may be in
// an indexed collection; of other blocks it stores only the ids. Then one walk over the
// tree finds the records by path, in order.
//
// The package does not trust hosts. It bounds what it reads, and the memory of all Readers
// together (Memory). The work is linear in the size of the CAR, whatever its tree and keys.
// Any inconsistency is an error. Package proof verifies signatures.
//
// indigo's repo and mst packages are the oracle of the tests, and the baseline of the
// benchmark (BenchmarkRead).
package repo

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// The errors of a CAR.
var (
	ErrCAR       = errors.New("not a repo's CAR")
	ErrTruncated = errors.New("the CAR is cut short")
	ErrTooLarge  = errors.New("the repo is too large")
	ErrEdges     = fmt.Errorf("%w: its records make too many edges for its bytes", ErrTooLarge)
	ErrHash      = errors.New("a block does not match the hash in its CID")
	ErrMissing   = errors.New("a block is missing")
	ErrTree      = errors.New("the tree is malformed")
	ErrCommit    = errors.New("the commit is malformed")
)

var (
	errNode  = fmt.Errorf("%w: a node", ErrTree)
	errOrder = fmt.Errorf("%w: keys out of order", ErrTree)
)

const (
	digestLen = 32
	cidLen    = 4 + digestLen
	maxHeader = 4096
	maxBlock  = 4 << 20 // a record has at most 1 MiB, and a node of the tree some KiB
	maxDepth  = 256     // of the tree: SHA-256 has no more bits
)

// rawPrefix begins the CID of a blob, which a CAR may contain and the Reader ignores.
const rawPrefix = "\x01\x55\x12\x20"

// A Reader reads one repo. It is for one goroutine.
type Reader struct {
	// DID, Rev and Data describe the repo: its account, its rev, and the digest of the
	// tree's root.
	DID, Rev, Data []byte
	// Commit is the commit block, whose signature is not verified.
	Commit []byte
	// Kinds is the table of indexed kinds, and Memory bounds the memory of this Reader and
	// others. They are set before Read.
	Kinds  *kinds.Table
	Memory *Memory
	// Spaces counts the records in the last Walk with a subject in a space, which is not indexed.
	Spaces int
	// Tolerate is how many blocks of records may be missing: such records name no subject.
	// The reference PDS loses some blocks of a repo that was imported over a newer one. Set
	// it before Walk.
	Tolerate int

	keys [][]byte // a record that names a subject has one of these

	in    bufio.Reader
	limit io.LimitedReader // under in: one byte more than may be read
	most  int64            // bytes that may be read
	buf   []byte           // the last section

	blockTable
	allocated int // bytes
	lease     lease
	root      [digestLen]byte
}

// subjectKeys returns the first fields of all subjects as CBOR texts: a record without any
// of them names no subject.
func subjectKeys(t *kinds.Table) (keys [][]byte) {
	for i := range t.All {
		field, _, _ := kinds.CutStep(t.All[i].To.Field[0])
		key := append([]byte{wire.Text<<5 | byte(len(field))}, field...) // they are short: see kinds.Parse
		if !t.All[i].Kind.IsSelf() && !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Read reads a CAR of at most that many bytes to its end. ctx ends only the wait for
// memory; to end reading, in must return an error.
func (r *Reader) Read(ctx context.Context, in io.Reader, most int64) error {
	r.limit, r.most = io.LimitedReader{R: in, N: most + 1}, most
	r.in.Reset(&r.limit)
	r.keys, r.blocks = subjectKeys(r.Kinds), map[blockID][]byte{}
	if err := r.header(ctx); err != nil {
		return err
	}
	for {
		section, err := r.section(ctx, maxBlock)
		switch {
		case errors.Is(err, io.EOF) && r.limit.N > 0:
			return r.commit()
		case errors.Is(err, io.EOF):
			return ErrTooLarge
		case err != nil:
			return err
		}
		if err := r.take(ctx, section); err != nil {
			return err
		}
	}
}

// Bytes returns how many bytes of the CAR were read.
func (r *Reader) Bytes() int { return int(r.most + 1 - r.limit.N) }

// section returns the next section of the CAR, valid until the next call; io.EOF at its end.
func (r *Reader) section(ctx context.Context, most uint64) ([]byte, error) {
	head, err := r.in.Peek(binary.MaxVarintLen64) // fewer bytes near the end
	n, width := binary.Uvarint(head)
	switch {
	case len(head) == 0 || width <= 0 && err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case width <= 0:
		return nil, fmt.Errorf("%w: malformed length of a block", ErrTruncated)
	case n > most:
		return nil, fmt.Errorf("%w: a block of %d bytes", ErrCAR, n)
	}
	_, _ = r.in.Discard(width)
	r.buf = r.buf[:0]
	for len(r.buf) < int(n) {
		if len(r.buf) == cap(r.buf) { // it grows only as bytes arrive: a host may announce a large block, and never send it
			size := max(bufferLen, min(2*cap(r.buf), int(n)))
			if err := r.grow(ctx, size-cap(r.buf)); err != nil {
				return nil, err
			}
			r.buf = append(make([]byte, 0, size), r.buf...)
		}
		k, err := r.in.Read(r.buf[len(r.buf):min(cap(r.buf), int(n))])
		r.buf = r.buf[:len(r.buf)+k]
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF): // io.ErrUnexpectedEOF is the error of a broken connection
			return nil, err
		case r.limit.N <= 0:
			return nil, ErrTooLarge
		default:
			return nil, ErrTruncated
		}
	}
	return r.buf, nil
}

// header reads the header, and from it the CID of the commit.
func (r *Reader) header(ctx context.Context) error {
	head, err := r.section(ctx, maxHeader)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: empty", ErrTruncated)
	}
	if err != nil {
		return err
	}
	root, ok := wire.CARHeader(head)
	if ok {
		r.root, ok = wire.Digest(root)
	}
	if !ok {
		return fmt.Errorf("%w: malformed header", ErrCAR)
	}
	return nil
}

// take checks a block, and adds it.
func (r *Reader) take(ctx context.Context, section []byte) error {
	if len(section) < cidLen || string(section[:len(wire.CIDPrefix)]) != wire.CIDPrefix {
		if len(section) >= cidLen && string(section[:len(rawPrefix)]) == rawPrefix {
			return nil
		}
		return fmt.Errorf("%w: a CID that this protocol does not use", ErrCAR)
	}
	sum := sha256.Sum256(section[cidLen:])
	if string(sum[:]) != string(section[len(wire.CIDPrefix):cidLen]) {
		return ErrHash
	}
	return r.add(ctx, &sum, section[cidLen:])
}

// mayNeed reports whether a block may be a node of the tree, the commit, or a record with a
// subject.
func (r *Reader) mayNeed(sum *[digestLen]byte, data []byte) bool {
	if len(data) > 3 && data[0] == wire.Map<<5|2 && data[1] == wire.Text<<5|1 && data[2] == 'e' || *sum == r.root {
		return true
	}
	for _, key := range r.keys {
		if bytes.Contains(data, key) {
			return true
		}
	}
	return false
}

// commit parses the commit.
func (r *Reader) commit() error {
	data, ok := r.find(&r.root)
	if !ok {
		return fmt.Errorf("%w: the commit", ErrMissing)
	}
	var k wire.CommitBlock
	if ok = k.Read(data); ok {
		_, ok = wire.Digest(k.Data)
	}
	if !ok || !dict.ValidDID(k.DID) || !dict.ValidTID(k.Rev) {
		return ErrCommit
	}
	r.DID, r.Rev, r.Data, r.Commit = k.DID, k.Rev, k.Data[len(wire.CIDPrefix):], data
	return nil
}
