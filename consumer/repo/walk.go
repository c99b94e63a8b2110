package repo

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// maxKey bounds the path of a record.
const maxKey = dict.MaxNSID + 1 + dict.MaxRkey

// Walk calls each for the records of indexed collections, in the order of their paths. If a record
// names several subjects of a kind (kinds.Kind.IsMany), it calls each once for each subject.
// subject is empty if a record names none. rkey and subject are valid
// only during the call. Walk ends early with the error of ctx, or with ErrEdges.
func (r *Reader) Walk(ctx context.Context, each func(k kinds.Kind, rkey, subject []byte)) error {
	w := walk{r: r, each: each, ctx: ctx, slash: none}
	r.Spaces = 0
	_, err := w.node([digestLen]byte(r.Data), 0)
	return err
}

// none is a position beyond every key.
const none = math.MaxInt

// walk is one walk over the tree. Keys ascend strictly, so it ends.
//
// The keys of a node are compressed: each says how much it shares with the previous one of
// the node. walk has only one key in memory, the last one in the order of the tree, and an
// entry changes only the part that differs. Because keys ascend, all keys of the subtree
// between two entries begin with what these two entries share. So the bytes that the second
// takes over from the first are still in the key, or the keys are out of order.
type walk struct {
	r       *Reader
	each    func(k kinds.Kind, rkey, subject []byte)
	ctx     context.Context //nolint:containedctx // of this walk
	missing int             // missing blocks of records
	nodes   int             // nodes walked
	steps   int             // nodes and entries walked

	key   []byte            // the last one
	slash int               // position of its slash; none if it has none
	of    *kinds.Collection // its collection; nil if not indexed

	read  int      // bytes of records parsed
	edges int      // that the records make
	found [][]byte // scratch
	own   []byte   // likewise
}

// step counts a node or an entry, and checks ctx now and then.
func (w *walk) step() error {
	const often = 1024
	if w.steps++; w.steps%often == 0 && w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	return nil
}

// node walks a node: its left subtree, and then for each entry its record and its right
// subtree. It returns how many bytes of the key before the node stayed unchanged
// throughout.
func (w *walk) node(digest [digestLen]byte, depth int) (unchanged int, err error) {
	if err := w.step(); err != nil {
		return 0, err
	}
	if w.nodes++; w.nodes > len(w.r.blocks) { // a node cannot occur twice in a tree, unless it has no entries
		return 0, fmt.Errorf("%w: a node occurs twice", ErrTree)
	}
	if depth > maxDepth {
		return 0, fmt.Errorf("%w: too deep", ErrTree)
	}
	data, ok := w.r.find(&digest)
	if !ok {
		return 0, fmt.Errorf("%w: a node of the tree", ErrMissing)
	}
	var n wire.Node
	if !n.Read(data) {
		return 0, errNode
	}
	unchanged, err = w.subtree(n.Left, depth)
	if err != nil {
		return 0, err
	}
	before, intact := 0, 0 // the length of the previous entry's key, and how much of it w.key still begins with
	for e := range n.Entries {
		if e.Prefix > uint64(before) {
			return 0, errNode
		}
		if int(e.Prefix) > intact {
			return 0, errOrder
		}
		shared, err := w.advance(int(e.Prefix), e.Rest)
		if err != nil {
			return 0, err
		}
		before = len(w.key)
		if err := w.record(e.Value); err != nil {
			return 0, err
		}
		below, err := w.subtree(e.Right, depth)
		if err != nil {
			return 0, err
		}
		intact = min(before, below)
		unchanged = min(unchanged, shared, below)
	}
	if n.Bad {
		return 0, errNode
	}
	return unchanged, nil
}

func (w *walk) subtree(cid []byte, depth int) (unchanged int, err error) {
	if len(cid) == 0 {
		return none, nil
	}
	digest, ok := wire.Digest(cid)
	if !ok {
		return 0, fmt.Errorf("%w: the CID of a node", ErrTree)
	}
	return w.node(digest, depth+1)
}

// advance moves on to the key that consists of prefix bytes of the last one and rest. It
// returns how many bytes the two keys share.
func (w *walk) advance(prefix int, rest []byte) (shared int, err error) {
	if err := w.step(); err != nil {
		return 0, err
	}
	if prefix+len(rest) > maxKey {
		return 0, fmt.Errorf("%w: a key of %d bytes; the path of a record has at most %d", ErrTree, prefix+len(rest), maxKey)
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
	if w.slash >= shared { // the collection has changed
		w.slash, w.of = none, nil
		if i := bytes.IndexByte(w.key[shared:], '/'); i >= 0 {
			w.slash, w.of = shared+i, w.r.Kinds.CollectionOf(w.key)
		}
	}
	return shared, nil
}

// mostRead is how many bytes of records are parsed at most for a byte of the CAR: many paths may have the same
// large record.
const mostRead = 16

// emptyRecord replaces a record that is not stored, because it has none of the fields.
var emptyRecord = []byte{wire.Map << 5}

// record calls each for a record of an indexed collection, once for each edge that it makes.
func (w *walk) record(cid []byte) error {
	if w.of == nil {
		return nil
	}
	rkey := w.key[w.slash+1:]
	if !dict.ValidRkey(rkey) {
		return nil
	}
	var data []byte
	found := false
	if digest, ok := wire.Digest(cid); ok {
		if data, found = w.r.find(&digest); !found {
			if w.missing++; w.missing > w.r.Tolerate {
				return fmt.Errorf("%w: the record %s", ErrMissing, w.key)
			}
		}
	}
	if found && data == nil {
		data = emptyRecord
	}
	if w.read += len(data); w.read > mostRead*w.r.Bytes() {
		return fmt.Errorf("%w: too many paths have the same large record", ErrEdges)
	}
	var dropped wire.Reason
	for _, k := range w.of.Kinds {
		var reason wire.Reason
		w.found, reason = wire.AppendSubjects(w.found[:0], k, data)
		if !reason.IsAbsent() {
			dropped = dropped.Or(reason)
		}
		if k.Kind.IsSelf() {
			w.own = k.AppendSelf(w.own[:0], w.r.DID, rkey)
			w.found = append(w.found, w.own)
		}
		for _, subject := range w.found {
			if subject != nil {
				w.edges++
			}
			if most := kinds.MostEdges(w.r.Bytes()); w.edges > most {
				return fmt.Errorf("%w: more than %d for %d bytes", ErrEdges, most, w.r.Bytes())
			}
			w.each(k.Kind, rkey, subject)
		}
	}
	if dropped == wire.SpaceSubject {
		w.r.Spaces++
	}
	return nil
}
