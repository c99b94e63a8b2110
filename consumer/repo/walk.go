package repo

import (
	"bytes"
	"fmt"

	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
	"skein.blue/internal/cbor"
	"skein.blue/internal/syntax"
)

// Walk calls each for the records of indexed collections, in the order of their paths.
// subject is nil where a record names none. The arguments are valid during the call.
func (r *Reader) Walk(each func(k kinds.Kind, rkey, subject []byte)) error {
	r.walk.r, r.walk.each, r.walk.last, r.walk.missing, r.walk.nodes = r, each, r.walk.last[:0], 0, 0
	return r.walk.node(r.Data, 0)
}

// walk is one walk over the tree. Keys ascend strictly, so it ends.
type walk struct {
	r       *Reader
	each    func(k kinds.Kind, rkey, subject []byte)
	missing int // blocks of records
	nodes   int // that were walked

	last []byte   // the key before
	keys [][]byte // of the entry before, by the depth of its node
}

// key returns the memory for the keys of a node.
func (w *walk) key(depth int) []byte {
	for len(w.keys) <= depth {
		w.keys = append(w.keys, make([]byte, 0, 64))
	}
	return w.keys[depth][:0]
}

// node walks a node: the subtree at its left, and then for each entry its record, and the
// subtree at its right.
func (w *walk) node(digest []byte, depth int) error {
	if w.nodes++; w.nodes > len(w.r.blocks) { // a node cannot be in a tree twice, but for those without entries
		return fmt.Errorf("%w: a node comes again", ErrTree)
	}
	if depth > maxDepth {
		return fmt.Errorf("%w: it is too deep", ErrTree)
	}
	data, ok := w.r.find(digest)
	if !ok {
		return fmt.Errorf("%w: a node of the tree", ErrMissing)
	}
	c := cbor.Cursor{B: data}
	if c.Count(cbor.Map) != 2 || string(c.Text()) != "e" {
		return errNode
	}
	entries := c
	left, end, ok := leftOf(data)
	if !ok {
		return errNode
	}
	if err := w.subtree(left, depth); err != nil {
		return err
	}
	key := w.key(depth)
	for range entries.Count(cbor.Array) {
		e, err := readEntry(&entries)
		if err != nil {
			return err
		}
		if e.prefix > uint64(len(key)) {
			return errNode
		}
		key = append(key[:e.prefix], e.rest...)
		w.keys[depth] = key
		if bytes.Compare(key, w.last) <= 0 {
			return fmt.Errorf("%w: its keys are out of order", ErrTree)
		}
		w.last = append(w.last[:0], key...)
		if err := w.record(key, e.value); err != nil {
			return err
		}
		if err := w.subtree(e.right, depth); err != nil {
			return err
		}
	}
	if entries.Bad || entries.I != end {
		return errNode
	}
	return nil
}

// leftOf returns the link to the subtree that comes first, which stands at the end of a
// node, and where that begins. Whether it does, the entries before it tell.
func leftOf(data []byte) (cid []byte, at int, ok bool) {
	const none, head = "al\xf6", "al" + linkHead
	if at = len(data) - len(none); at > 0 && string(data[at:]) == none {
		return nil, at, true
	}
	if at = len(data) - len(head) - digestLen; at > 0 && string(data[at:at+len(head)]) == head {
		return data[len(data)-cidLen:], at, true
	}
	return nil, 0, false
}

// linkHead is what the link to a block begins with, up to its digest.
const linkHead = "\xd8\x2a\x58\x25\x00" + cidPrefix

func (w *walk) subtree(cid []byte, depth int) error {
	if len(cid) == 0 {
		return nil
	}
	if !isCID(cid) {
		return fmt.Errorf("%w: the CID of a node", ErrTree)
	}
	return w.node(cid[len(cidPrefix):], depth+1)
}

// entry is one of a node.
type entry struct {
	prefix uint64 // bytes of the key before
	rest   []byte
	value  []byte
	right  []byte
}

func readEntry(c *cbor.Cursor) (e entry, err error) {
	if e.usual(c) {
		return e, nil
	}
	for range c.Count(cbor.Map) {
		switch string(c.Text()) {
		case "p":
			e.prefix = c.Uint()
		case "k":
			e.rest = c.Bytes()
		case "v":
			e.value = c.Link()
		case "t":
			e.right = c.Link()
		default:
			c.Fail()
		}
	}
	if c.Bad || len(e.rest) == 0 || len(e.value) == 0 {
		return e, errEntry
	}
	return e, nil
}

// usual reads an entry in the one form that DAG-CBOR has for it, if its key is short, and
// reports whether it is one.
func (e *entry) usual(c *cbor.Cursor) bool {
	const key, prefix, tree, value = "\xa4ak", "ap", "at", "av" + linkHead
	b := c.B[c.I:]
	if len(b) < len(key)+2 || string(b[:len(key)]) != key {
		return false
	}
	n, at := int(b[len(key)])-cbor.Bytes<<5, len(key)+1
	if n == 24 {
		n, at = int(b[at]), at+1
	}
	if n <= 0 || n > 255 || len(b) < at+n+len(prefix)+2+len(tree)+1+digestLen+len(value)+digestLen {
		return false // the last has a shorter form, which is read in the other way
	}
	e.rest = b[at : at+n : at+n]
	if b = b[at+n:]; string(b[:len(prefix)]) != prefix {
		return false
	}
	switch p := b[len(prefix)]; {
	case p < 24:
		e.prefix, b = uint64(p), b[len(prefix)+1:]
	case p == 24:
		e.prefix, b = uint64(b[len(prefix)+1]), b[len(prefix)+2:]
	default:
		return false
	}
	if string(b[:len(tree)]) != tree {
		return false
	}
	switch b = b[len(tree):]; {
	case b[0] == 0xf6:
		e.right, b = nil, b[1:]
	case len(b) > len(linkHead)+digestLen && string(b[:len(linkHead)]) == linkHead:
		e.right, b = b[len(linkHead)-len(cidPrefix):len(linkHead)+digestLen], b[len(linkHead)+digestLen:]
	default:
		return false
	}
	if len(b) < len(value)+digestLen || string(b[:len(value)]) != value {
		return false
	}
	e.value = b[len(value)-len(cidPrefix) : len(value)+digestLen]
	c.I = len(c.B) - len(b) + len(value) + digestLen
	return true
}

// record tells of a record, if its collection is indexed: of each kind of edge that it may
// make.
func (w *walk) record(path, cid []byte) error {
	of := w.r.table().CollectionOf(path)
	if of == nil {
		return nil
	}
	rkey := path[len(of.NSID)+1:]
	if !syntax.ValidRkey(rkey) {
		w.r.Malformed++
		return nil
	}
	var data []byte
	ok := false
	if isCID(cid) {
		if data, ok = w.r.find(cid[len(cidPrefix):]); !ok {
			if w.missing++; w.missing > w.r.Tolerate {
				return fmt.Errorf("%w: the record %s", ErrMissing, path)
			}
		}
	}
	malformed := !ok
	for _, k := range of.Kinds {
		var subject []byte
		if ok && data == nil && k.Optional { // it has none of the fields, and so was not kept
			continue
		}
		if ok {
			var reason wire.Reason
			if subject, reason = wire.Subject(k, data); reason.IsAbsent() {
				continue
			} else if reason != "" {
				subject, malformed = nil, true
			}
		}
		w.each(k.Kind, rkey, subject)
	}
	if malformed {
		w.r.Malformed++
	}
	return nil
}
