package repo

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
	"skein.blue/internal/cbor"
	"skein.blue/internal/syntax"
)

// maxKey is how long the path of a record may be.
const maxKey = syntax.MaxNSID + 1 + syntax.MaxRkey

// Walk calls each for the records of indexed collections, in the order of their paths.
// subject is nil where a record names none; it is valid until the next Read or Release,
// rkey during the call. Walk ends early, with the error of ctx, when ctx has ended.
func (r *Reader) Walk(ctx context.Context, each func(k kinds.Kind, rkey, subject []byte)) error {
	w := &r.walk
	w.forget(r)
	w.r, w.each, w.ctx = r, each, ctx
	w.key, w.slash, w.bad, w.of = w.key[:0], none, none, nil
	w.missing, w.nodes, w.steps, w.read, w.work = 0, 0, 0, 0, 0
	r.Malformed, r.Spaces = 0, 0
	_, err := w.node(r.Data, 0)
	return err
}

// none is a position that no key has.
const none = math.MaxInt

// walk is one walk over the tree. Keys ascend strictly, so it ends.
//
// The keys of a node are compressed: each says how much it shares with the one before it
// in the node. There is one key in memory, the last one in the order of the tree, and an
// entry changes only what differs from it. Keys ascend, so all keys of the subtree between
// two entries begin with whatever these two share: what the second takes over from the
// first still stands in the key, or the keys are out of order.
type walk struct {
	r       *Reader
	each    func(k kinds.Kind, rkey, subject []byte)
	ctx     context.Context //nolint:containedctx // of the one walk
	missing int             // blocks of records
	nodes   int             // that were walked
	steps   int             // nodes and entries

	key   []byte            // the last one
	slash int               // where the rkey begins in it, less one; none if it has no slash
	of    *kinds.Collection // the collection that it begins with, nil if that is not indexed
	bad   int               // the first byte in it that no rkey has; none if there is none

	read int // bytes of the records that were read
	memo map[memoKey][]named
	said []named // of the record that was read last
	work int     // bytes of keys and records that were compared, copied or decoded
}

// step counts a node or an entry, and looks now and then whether the walk is to end.
func (w *walk) step() error {
	const often = 1024
	if w.steps++; w.steps%often == 0 && w.ctx.Err() != nil {
		return w.ctx.Err() //nolint:wrapcheck // the caller's own
	}
	return nil
}

// node walks a node: the subtree at its left, and then for each entry its record, and the
// subtree at its right. It returns how many bytes of the key before the node stood
// throughout.
func (w *walk) node(digest []byte, depth int) (stood int, err error) {
	if err := w.step(); err != nil {
		return 0, err
	}
	if w.nodes++; w.nodes > w.r.n { // a node cannot be in a tree twice, but for those without entries
		return 0, fmt.Errorf("%w: a node comes again", ErrTree)
	}
	if depth > maxDepth {
		return 0, fmt.Errorf("%w: it is too deep", ErrTree)
	}
	data, ok := w.r.find(digest)
	if !ok {
		return 0, fmt.Errorf("%w: a node of the tree", ErrMissing)
	}
	c := cbor.Cursor{B: data}
	if c.Count(cbor.Map) != 2 || string(c.Text()) != "e" {
		return 0, errNode
	}
	left, end, ok := leftOf(data)
	if !ok {
		return 0, errNode
	}
	stood, err = w.subtree(left, depth)
	if err != nil {
		return 0, err
	}
	shared, err := w.entries(&c, depth)
	if err == nil && (c.Bad || c.I != end) {
		err = errNode
	}
	return min(stood, shared), err
}

// entries walks the entries of a node. It returns as much as node does.
func (w *walk) entries(c *cbor.Cursor, depth int) (stood int, err error) {
	stood = none
	before, has := 0, 0 // the length of the entry's key before, and how much of it w.key still begins with
	for range c.Count(cbor.Array) {
		e, err := readEntry(c)
		if err != nil {
			return 0, err
		}
		if e.prefix > uint64(before) {
			return 0, errNode
		}
		if int(e.prefix) > has {
			return 0, errOrder
		}
		shared, err := w.advance(int(e.prefix), e.rest)
		if err != nil {
			return 0, err
		}
		before = len(w.key)
		if err := w.record(e.value); err != nil {
			return 0, err
		}
		below, err := w.subtree(e.right, depth)
		if err != nil {
			return 0, err
		}
		has = min(before, below)
		stood = min(stood, shared, below)
	}
	return stood, nil
}

func (w *walk) subtree(cid []byte, depth int) (stood int, err error) {
	if len(cid) == 0 {
		return none, nil
	}
	if !isCID(cid) {
		return 0, fmt.Errorf("%w: the CID of a node", ErrTree)
	}
	return w.node(cid[len(cidPrefix):], depth+1)
}

// advance goes on to the key that has so many bytes of the last one, and then rest. It
// returns how many the two share.
func (w *walk) advance(prefix int, rest []byte) (shared int, err error) {
	if err := w.step(); err != nil {
		return 0, err
	}
	if prefix+len(rest) > maxKey {
		return 0, fmt.Errorf("%w: a key of %d bytes; the path of a record has %d at most", ErrTree, prefix+len(rest), maxKey)
	}
	tail := w.key[prefix:]
	same := 0
	for same < len(tail) && same < len(rest) && tail[same] == rest[same] {
		same++
	}
	if same == len(rest) || same < len(tail) && rest[same] < tail[same] {
		return 0, errOrder
	}
	shared = prefix + same
	w.key = append(w.key[:shared], rest[same:]...)
	w.work += same + len(rest)
	w.parse(shared)
	return shared, nil
}

// parse finds the collection and the rkey of the key, of which so many bytes are as before.
func (w *walk) parse(shared int) {
	if w.slash >= shared {
		w.slash, w.of, w.bad = none, nil, none
		if i := bytes.IndexByte(w.key[shared:], '/'); i >= 0 {
			w.slash = shared + i
			w.of = w.r.table().CollectionOf(w.key)
		}
		w.work += len(w.key) - shared
	}
	if w.of != nil && w.bad >= shared {
		from := max(shared, w.slash+1)
		w.bad = none
		if i := syntax.IndexNotRkey(w.key[from:]); i >= 0 {
			w.bad = from + i
		}
		w.work += len(w.key) - from
	}
}

// rkey returns the record key of the key, nil if it is malformed.
func (w *walk) rkey() []byte {
	rkey := w.key[w.slash+1:]
	if w.bad != none || len(rkey) > syntax.MaxRkey || len(rkey) <= len("..") && !syntax.ValidRkey(rkey) {
		return nil
	}
	return rkey
}

// record tells of a record, if its collection is indexed: of each kind of edge that it may
// make.
func (w *walk) record(cid []byte) error {
	if w.of == nil {
		return nil
	}
	rkey := w.rkey()
	if rkey == nil {
		w.r.Malformed++
		return nil
	}
	index := -1
	if isCID(cid) {
		if index = w.r.index(cid[len(cidPrefix):]); index < 0 {
			if w.missing++; w.missing > w.r.Tolerate {
				return fmt.Errorf("%w: the record %s", ErrMissing, w.key)
			}
		}
	}
	if index < 0 {
		w.r.Malformed++
		for _, k := range w.of.Kinds {
			w.each(k.Kind, rkey, nil)
		}
		return nil
	}
	all, err := w.subjects(index)
	if err != nil {
		return err
	}
	var dropped wire.Reason
	for i, k := range w.of.Kinds {
		one := &all[i]
		if one.reason.IsAbsent() {
			continue
		}
		dropped = dropped.Or(one.reason)
		w.each(k.Kind, rkey, one.subject)
	}
	switch {
	case dropped == wire.SpaceSubject:
		w.r.Spaces++
	case dropped != "":
		w.r.Malformed++
	}
	return nil
}

// named is what a record names at the field of a kind, or why it names nothing.
type named struct {
	subject []byte
	reason  wire.Reason
}

// memoKey is a block that was read as a record of a collection.
type memoKey struct {
	block int
	of    *kinds.Collection
}

// memoized is from which length on what a block says is remembered, and memoSize what that
// takes for each kind, in bytes.
const (
	memoized = 64
	memoSize = 96
)

// subjects returns what a record of the collection names, for each of its kinds. Many paths
// may have the same record, and it may be large. Once as much was read as there is to
// read, some are read again, and what they say is remembered.
func (w *walk) subjects(index int) ([]named, error) {
	data := w.r.data(index)
	if w.read <= w.r.stored || len(data) <= memoized {
		w.said = w.name(w.said[:0], data)
		return w.said, nil
	}
	key := memoKey{index, w.of}
	if said, ok := w.memo[key]; ok {
		return said, nil
	}
	if err := w.r.grow(w.ctx, (1+len(w.of.Kinds))*memoSize); err != nil {
		return nil, err
	}
	if w.memo == nil {
		w.memo = map[memoKey][]named{}
	}
	said := w.name(make([]named, 0, len(w.of.Kinds)), data)
	w.memo[key] = said
	return said, nil
}

// nothing stands for a record that was not kept, because it has none of the fields.
var nothing = []byte{cbor.Map << 5}

// name reads a record. data is nil if it was not kept.
func (w *walk) name(to []named, data []byte) []named {
	w.read += len(data)
	w.work += len(data) * len(w.of.Kinds)
	if data == nil {
		data = nothing
	}
	for _, k := range w.of.Kinds {
		subject, reason := wire.Subject(k, data)
		to = append(to, named{subject, reason})
	}
	return to
}

// forget drops what was remembered of records.
func (w *walk) forget(r *Reader) {
	for key := range w.memo {
		r.kept -= (1 + len(key.of.Kinds)) * memoSize
	}
	clear(w.said)
	w.memo, w.said = nil, w.said[:0]
}
