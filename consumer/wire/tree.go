package wire

// A Node is a node of the tree of a repo, an MST (https://atproto.com/specs/repository#mst-structure). Its slices
// point into the block.
type Node struct {
	Left []byte // CID of the subtree before the first entry; nil: none
	Bad  bool   // the entries are malformed

	entries Cursor
}

// An Entry is an entry of a Node. Its key is Prefix bytes of the previous one, and Rest.
type Entry struct {
	Prefix uint64
	Rest   []byte
	Value  []byte // CID of the record
	Right  []byte // CID of the subtree behind it; nil: none
}

// Read reads a node up to its entries, and reports whether it is one.
func (n *Node) Read(block []byte) bool {
	*n = Node{}
	c := Cursor{B: block}
	for key := range c.Fields {
		switch string(key) {
		case "e":
			n.entries = Cursor{B: c.Item()}
		case "l":
			n.Left = c.Link()
		default:
			c.Fail()
		}
	}
	return !c.Bad && c.I == len(block)
}

// Entries yields the entries, up to a malformed one, which sets Bad.
func (n *Node) Entries(yield func(Entry) bool) {
	c := &n.entries
	for range c.Count(Array) {
		var e Entry
		for range c.Count(Map) {
			switch string(c.Text()) {
			case "p":
				e.Prefix = c.Uint()
			case "k":
				e.Rest = c.Bytes()
			case "v":
				e.Value = c.Link()
			case "t":
				e.Right = c.Link()
			default:
				c.Fail()
			}
		}
		if c.Bad || len(e.Rest) == 0 || len(e.Value) == 0 {
			c.Fail()
			break
		}
		if !yield(e) {
			return
		}
	}
	n.Bad = c.Bad
}
