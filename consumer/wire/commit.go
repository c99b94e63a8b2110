package wire

// A CommitBlock is the commit block of a repo (https://atproto.com/specs/repository#commit-objects).
type CommitBlock struct {
	DID, Rev  []byte
	Data      []byte // CID of the root of the tree
	Prev, Sig []byte // as they are encoded
}

// Read reads a commit block of the version that this protocol uses, and reports whether it is one. Afterwards
// the slices of k point into the block.
func (k *CommitBlock) Read(block []byte) bool {
	*k = CommitBlock{}
	c := Cursor{B: block}
	version := uint64(0)
	for range c.Count(Map) {
		switch string(c.Text()) {
		case "did":
			k.DID = c.Text()
		case "rev":
			k.Rev = c.Text()
		case "data":
			k.Data = c.Link()
		case "prev":
			k.Prev = c.Item()
		case "sig":
			k.Sig = c.Item()
		case "version":
			version = c.Uint()
		default:
			c.Skip()
		}
	}
	return !c.Bad && c.I == len(block) && version == 3 && len(k.Data) == cidLen
}
