package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"skein.blue/consumer/wire"
)

// ErrCommit means that a message has no valid commit block.
var ErrCommit = errors.New("the commit block is missing or malformed")

// A Commit is the commit block of a repo (https://atproto.com/specs/repository#commit-objects).
type Commit struct {
	DID      []byte // of the repo
	Unsigned []byte // the bytes that the account's key signs
	Sig      []byte // their signature
	Data     []byte // CID of the root of the tree
}

// ParseCommit decodes a commit block.
func ParseCommit(block []byte) (k Commit, err error) {
	var in wire.CommitBlock
	ok := in.Read(block)
	sig := wire.Cursor{B: in.Sig}
	k = Commit{DID: in.DID, Data: in.Data, Sig: sig.Bytes()}
	var prev []byte
	if p := (wire.Cursor{B: in.Prev}); len(in.Prev) > 0 {
		prev = p.Link()
		ok = ok && !p.Bad
	}
	if !ok || len(k.DID) == 0 || len(in.Rev) == 0 || len(k.Sig) == 0 {
		return Commit{}, ErrCommit
	}
	// Encoded again without the signature, with the keys in the order of DAG-CBOR.
	b := make([]byte, 0, len(block))
	b = text(text(text(append(b, wire.Map<<5|5), "did"), k.DID), "rev")
	b = text(text(b, in.Rev), "data")
	b = text(cid(b, k.Data), "prev")
	if prev == nil {
		b = append(b, 0xf6)
	} else {
		b = cid(b, prev)
	}
	k.Unsigned = append(text(b, "version"), 3)
	return k, nil
}

func text[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(wire.AppendHead(b, wire.Text, uint64(len(s))), s...)
}

func cid(b, cid []byte) []byte {
	b = wire.AppendHead(append(b, "\xd8\x2a"...), wire.Bytes, uint64(len(cid)+1))
	return append(append(b, 0), cid...)
}

// A Checker checks messages. It is for one goroutine.
type Checker struct {
	blocks map[digest][]byte
	tree   tree
	ops    []wire.Op
}

// Commit returns the commit of a Commit or a Sync. It checks the block against its CID.
func (c *Checker) Commit(m *wire.Message) (Commit, error) {
	if err := c.read(m.Blocks); err != nil {
		return Commit{}, err
	}
	root := m.CommitCID
	if m.Type == wire.Sync {
		root = wire.Root(m.Blocks)
	}
	sum, ok := wire.Digest(root)
	block := c.blocks[sum]
	if !ok || block == nil || sha256.Sum256(block) != sum {
		return Commit{}, fmt.Errorf("%w: the CAR has no block %s", ErrCommit, linkText(root))
	}
	k, err := ParseCommit(block)
	if err == nil && !bytes.Equal(k.DID, m.DID) {
		err = fmt.Errorf("%w: it belongs to %s", ErrCommit, k.DID)
	}
	return k, err
}

// linkText returns any CID as text.
func linkText(cid []byte) string {
	const most = 64
	return "b" + base32Lower.EncodeToString(cid[:min(len(cid), most)])
}

// read notes the blocks of a CAR.
func (c *Checker) read(car []byte) error {
	c.blocks = map[digest][]byte{}
	err := wire.EachBlock(car, func(cid, block []byte) {
		if sum, ok := wire.Digest(cid); ok && c.blocks[sum] == nil {
			c.blocks[sum] = block
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCommit, err)
	}
	return nil
}

// Invert undoes the operations of a Commit on the tree of k, which c.Commit has just returned for
// the message, and compares the root with prevData. A commit without prevData must be the first:
// nothing may be left.
func (c *Checker) Invert(m *wire.Message, k Commit) error {
	if err := c.parseOps(m.Ops); err != nil {
		return err
	}
	root, ok := wire.Digest(k.Data)
	if !ok {
		return fmt.Errorf("%w: the commit names the root %x, which is not a CID of this form", ErrNode, k.Data)
	}
	prev, hasPrev := wire.Digest(m.PrevData)
	if len(c.ops) == 0 && hasPrev && prev == root { // nothing has changed, and no node is needed
		return nil
	}
	c.tree.block = func(d digest) []byte { return c.blocks[d] }
	if err := c.tree.open(root); err != nil {
		return err
	}
	for i := range c.ops {
		o := &c.ops[i]
		if err := c.invert(o); err != nil {
			return fmt.Errorf("undoing the %.20q of %q: %w", o.Action, o.Path, err)
		}
	}
	if len(m.PrevData) == 0 {
		if !c.tree.root.isEmpty() {
			return fmt.Errorf("%w: prevData is missing, and undoing the operations leaves the tree %s", ErrRoot, cidText(c.tree.sumOf(c.tree.root)))
		}
		return nil
	}
	if !hasPrev || !c.tree.leadsTo(prev) {
		return fmt.Errorf("%w: undoing the operations leads to %s; prevData is %s", ErrRoot, cidText(c.tree.sumOf(c.tree.root)), linkText(m.PrevData))
	}
	return nil
}

func (c *Checker) invert(o *wire.Op) error {
	value, is := wire.Digest(o.CID)
	prev, was := wire.Digest(o.Prev)
	switch action := string(o.Action); {
	case action == "create" && is && len(o.Prev) == 0:
		return c.tree.remove(o.Path, value)
	case action == "update" && is && was:
		return c.tree.replace(o.Path, value, prev)
	case action == "delete" && was && len(o.CID) == 0:
		return c.tree.insert(o.Path, prev)
	default:
		return fmt.Errorf("%w: it lacks cid or prev, has one too many, or has an unknown action", ErrOp)
	}
}

// parseOps reads the operations. They are undone with the deletions first, as in indigo: nodes of
// the tree that only the other order needs are not sent.
func (c *Checker) parseOps(array []byte) error {
	c.ops = c.ops[:0]
	ok := wire.EachOp(array, func(o wire.Op) bool {
		c.ops = append(c.ops, o)
		return len(o.Path) > 0 && len(o.Path) <= maxKey
	})
	if !ok {
		return fmt.Errorf("%w: the list is malformed", ErrOp)
	}
	slices.SortFunc(c.ops, func(x, y wire.Op) int { return bytes.Compare(x.Path, y.Path) })
	for i := 1; i < len(c.ops); i++ {
		if bytes.Equal(c.ops[i].Path, c.ops[i-1].Path) {
			return fmt.Errorf("%w: %q occurs twice", ErrOp, c.ops[i].Path)
		}
	}
	rank := func(o wire.Op) int {
		if string(o.Action) == "delete" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(c.ops, func(x, y wire.Op) int { return rank(x) - rank(y) })
	return nil
}
