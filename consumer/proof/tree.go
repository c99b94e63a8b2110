package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"skein.blue/consumer/wire"
)

// The reasons why a commit is not proven.
var (
	ErrMissing = errors.New("a node of the tree is missing")
	ErrNode    = errors.New("a node of the tree is malformed")
	ErrOp      = errors.New("an operation does not fit the tree")
	ErrRoot    = errors.New("the operations do not lead from prevData to the commit")
)

// A digest is the hash in a CID (wire.Digest).
type digest = [sha256.Size]byte

// base32Lower is the multibase alphabet of CIDs in text.
var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// cidText returns the CID with a digest as text, as other programs show it.
func cidText(d digest) string { return linkText(append([]byte(wire.CIDPrefix), d[:]...)) }

// A node of the tree. Its children have the level below its own.
type node struct {
	sum     digest // valid unless changed
	loaded  bool
	changed bool
	left    *node // nil: no subtree
	entries []entry
}

// An entry of a node, with the subtree to its right.
type entry struct {
	key   []byte
	value digest
	right *node
}

// isEmpty reports whether a loaded node has no content. Only the root of an empty repo has none.
func (n *node) isEmpty() bool { return len(n.entries) == 0 && n.left == nil }

// child returns the subtree before entry i.
func (n *node) child(i int) *node {
	if i == 0 {
		return n.left
	}
	return n.entries[i-1].right
}

func (n *node) setChild(i int, c *node) {
	if n.changed = true; i == 0 {
		n.left = c
		return
	}
	n.entries[i-1].right = c
}

// find returns the index of the first entry whose key is not below key, and whether it is key's.
func (n *node) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(n.entries, key, func(e entry, key []byte) int { return bytes.Compare(e.key, key) })
}

// levelOf returns the level of a key: half the number of leading zero bits of its hash. Nobody can find a key
// with a higher level than 32.
func levelOf(key []byte) int {
	sum := sha256.Sum256(key)
	return bits.LeadingZeros64(binary.BigEndian.Uint64(sum[:])) / 2
}

// A tree is a part of an MST: the nodes whose blocks are there are loaded when they are needed.
type tree struct {
	block func(digest) []byte // nil if the block is missing
	root  *node
	level int    // of the root
	buf   []byte // scratch
}

// open loads the root. The root should have an entry, unless the repo is empty. But indigo's tree
// leaves a root without entries behind when its last entry goes, so levels without entries above
// the tree are accepted, and change nothing (leadsTo).
func (t *tree) open(root digest) error {
	t.root = &node{sum: root}
	for {
		if err := t.load(t.root, -1); err != nil {
			return err
		}
		if len(t.root.entries) > 0 {
			t.level = levelOf(t.root.entries[0].key)
			return t.checkLevels(t.root, t.level)
		}
		if t.root.left == nil {
			t.level = 0
			return nil
		}
		t.root = t.root.left
	}
}

// maxRaised is how many levels without entries above a tree are accepted in prevData.
const maxRaised = 4

// leadsTo reports whether root is the root of the tree, possibly below levels without entries.
func (t *tree) leadsTo(root digest) bool {
	for n, levels := t.root, 0; levels <= maxRaised; n, levels = raise(n, 1), levels+1 {
		if t.sumOf(n) == root {
			return true
		}
		if n.isEmpty() {
			break
		}
	}
	return false
}

// load reads a node at a level; -1 if the level is not known yet.
func (t *tree) load(n *node, level int) error {
	if n.loaded {
		return nil
	}
	block := t.block(n.sum)
	if block == nil || sha256.Sum256(block) != n.sum {
		return fmt.Errorf("%w: %s", ErrMissing, cidText(n.sum))
	}
	if !n.parse(block) || level >= 0 && n.isEmpty() {
		return fmt.Errorf("%w: %s", ErrNode, cidText(n.sum))
	}
	n.loaded = true
	if level < 0 {
		return nil
	}
	return t.checkLevels(n, level)
}

func (t *tree) checkLevels(n *node, level int) error {
	for _, e := range n.entries {
		if levelOf(e.key) != level {
			return fmt.Errorf("%w: %s: the key %q is not at its level", ErrNode, cidText(n.sum), e.key)
		}
	}
	if level == 0 && (n.left != nil || slices.ContainsFunc(n.entries, func(e entry) bool { return e.right != nil })) {
		return fmt.Errorf("%w: %s: a leaf has a subtree", ErrNode, cidText(n.sum))
	}
	return nil
}

// parse decodes a node. The keys are ascending, and each leaves out as much as it has in common with the one
// before.
func (n *node) parse(block []byte) bool {
	var in wire.Node
	ok, room := in.Read(block), 64<<10+8*len(block) // room for keys: a malicious block could share long ones
	subtree := func(cid []byte) *node {
		if cid == nil {
			return nil
		}
		sum, is := wire.Digest(cid)
		ok = ok && is
		return &node{sum: sum}
	}
	n.left = subtree(in.Left)
	var before []byte
	for e := range in.Entries {
		value, is := wire.Digest(e.Value)
		if !is || e.Prefix > uint64(len(before)) {
			return false
		}
		if room -= int(e.Prefix) + len(e.Rest); room < 0 {
			return false
		}
		key := append(before[:e.Prefix:e.Prefix], e.Rest...)
		if bytes.Compare(before, key) >= 0 || len(key) > maxKey {
			return false
		}
		n.entries = append(n.entries, entry{key, value, subtree(e.Right)})
		before = key
	}
	return ok && !in.Bad
}

// maxKey bounds the length of a key, a collection and a record key.
const maxKey = 1024

// remove takes out a key with its value.
func (t *tree) remove(key []byte, value digest) error {
	err := t.change(t.root, t.level, key, levelOf(key), value, func(n *node, i, level int) error {
		merged, err := t.merge(n.child(i), n.entries[i].right, level-1)
		if err != nil {
			return err
		}
		n.entries = slices.Delete(n.entries, i, i+1)
		n.setChild(i, merged)
		return nil
	})
	if err != nil {
		return err
	}
	for len(t.root.entries) == 0 && t.root.left != nil { // no entry is left at the root's level
		t.root = t.root.left
		t.level--
		if err := t.load(t.root, t.level); err != nil {
			return err
		}
	}
	return nil
}

// replace sets the value of a key that has another one.
func (t *tree) replace(key []byte, was, value digest) error {
	return t.change(t.root, t.level, key, levelOf(key), was, func(n *node, i, _ int) error {
		n.entries[i].value = value
		return nil
	})
}

// change applies do to the entry of a key with its value, below a node. at is the level of the key.
func (t *tree) change(n *node, level int, key []byte, at int, value digest, do func(n *node, i, level int) error) error {
	i, found := n.find(key)
	c := n.child(i)
	n.changed = true
	switch {
	case at > level, found != (at == level), !found && c == nil:
		return fmt.Errorf("%w: the tree does not have %q", ErrOp, key)
	case found && n.entries[i].value != value:
		return fmt.Errorf("%w: the tree has the record %s at %q, the operation says %s", ErrOp, cidText(n.entries[i].value), key, cidText(value))
	case found:
		return do(n, i, level)
	}
	if err := t.load(c, level-1); err != nil {
		return err
	}
	if err := t.change(c, level-1, key, at, value, do); err != nil {
		return err
	}
	if c.isEmpty() {
		n.setChild(i, nil)
	}
	return nil
}

// merge joins two neighbouring subtrees.
func (t *tree) merge(a, b *node, level int) (*node, error) {
	switch {
	case a == nil:
		return b, nil
	case b == nil:
		return a, nil
	}
	if err := errors.Join(t.load(a, level), t.load(b, level)); err != nil {
		return nil, err
	}
	middle, err := t.merge(a.child(len(a.entries)), b.left, level-1)
	if err != nil {
		return nil, err
	}
	a.setChild(len(a.entries), middle)
	a.entries = append(a.entries, b.entries...)
	return a, nil
}

// insert adds a key, which must not be there.
func (t *tree) insert(key []byte, value digest) error {
	at := levelOf(key)
	if t.root.isEmpty() {
		t.root, t.level = &node{loaded: true, changed: true, entries: []entry{{key, value, nil}}}, at
		return nil
	}
	if at <= t.level {
		return t.insertAt(t.root, t.level, key, at, value)
	}
	l, r, err := t.split(t.root, t.level, key)
	if err != nil {
		return err
	}
	l, r = raise(l, at-1-t.level), raise(r, at-1-t.level)
	t.root, t.level = &node{loaded: true, changed: true, left: l, entries: []entry{{key, value, r}}}, at
	return nil
}

func (t *tree) insertAt(n *node, level int, key []byte, at int, value digest) error {
	i, found := n.find(key)
	if found {
		return fmt.Errorf("%w: the tree has %q already", ErrOp, key)
	}
	c := n.child(i)
	if at == level {
		l, r, err := t.split(c, level-1, key)
		if err != nil {
			return err
		}
		n.setChild(i, l)
		n.entries = slices.Insert(n.entries, i, entry{key, value, r})
		return nil
	}
	if c == nil {
		c = &node{loaded: true, changed: true, entries: []entry{{key, value, nil}}}
		n.setChild(i, raise(c, level-1-at))
		return nil
	}
	if err := t.load(c, level-1); err != nil {
		return err
	}
	n.changed = true
	return t.insertAt(c, level-1, key, at, value)
}

// raise puts a subtree under nodes without entries.
func raise(n *node, levels int) *node {
	for ; n != nil && levels > 0; levels-- {
		n = &node{loaded: true, changed: true, left: n}
	}
	return n
}

// split divides a subtree into what is before and after a key.
func (t *tree) split(n *node, level int, key []byte) (l, r *node, err error) {
	if n == nil {
		return nil, nil, nil
	}
	if err := t.load(n, level); err != nil {
		return nil, nil, err
	}
	i, found := n.find(key)
	if found {
		return nil, nil, fmt.Errorf("%w: the tree has %q already", ErrOp, key)
	}
	before, after, err := t.split(n.child(i), level-1, key)
	if err != nil {
		return nil, nil, err
	}
	l = &node{loaded: true, changed: true, left: n.left, entries: slices.Clone(n.entries[:i])}
	l.setChild(i, before)
	r = &node{loaded: true, changed: true, left: after, entries: slices.Clone(n.entries[i:])}
	if l.isEmpty() {
		l = nil
	}
	if r.isEmpty() {
		r = nil
	}
	return l, r, nil
}

// sumOf returns the digest of a node.
func (t *tree) sumOf(n *node) digest {
	if !n.changed {
		return n.sum
	}
	if n.left != nil {
		t.sumOf(n.left)
	}
	for i := range n.entries {
		if r := n.entries[i].right; r != nil {
			t.sumOf(r)
		}
	}
	t.buf = n.append(t.buf[:0])
	n.sum, n.changed = sha256.Sum256(t.buf), false
	return n.sum
}

// append encodes a node as DAG-CBOR. The sums of its children are current.
func (n *node) append(b []byte) []byte {
	b = append(b, "\xa2\x61e"...)
	b = wire.AppendHead(b, wire.Array, uint64(len(n.entries)))
	var before []byte
	for i := range n.entries {
		e := &n.entries[i]
		shared := 0
		for shared < len(before) && shared < len(e.key) && before[shared] == e.key[shared] {
			shared++
		}
		b = append(b, "\xa4\x61k"...)
		b = append(wire.AppendHead(b, wire.Bytes, uint64(len(e.key)-shared)), e.key[shared:]...)
		b = wire.AppendHead(append(b, "\x61p"...), wire.Uint, uint64(shared))
		b = appendSubtree(append(b, "\x61t"...), e.right)
		b = appendLink(append(b, "\x61v"...), &e.value)
		before = e.key
	}
	return appendSubtree(append(b, "\x61l"...), n.left)
}

func appendSubtree(b []byte, n *node) []byte {
	if n == nil {
		return append(b, 0xf6)
	}
	return appendLink(b, &n.sum)
}

// appendLink appends a CID as DAG-CBOR has it: tag 42, a byte string, and a zero byte before it.
func appendLink(b []byte, d *digest) []byte {
	b = append(b, "\xd8\x2a\x58\x25\x00"+wire.CIDPrefix...)
	return append(b, d[:]...)
}
