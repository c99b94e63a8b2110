package synth

import (
	"crypto/sha256"
	"math/bits"

	"skein.blue/consumer/wire"
)

// A RepoRecord is a record of a repo with its path.
type RepoRecord struct {
	Path string
	Block
}

// A Repo builds repos in the form of com.atproto.sync.getRepo. It reuses its memory.
type Repo struct {
	nodes  []Block // of the tree; each follows its subtrees
	layers []int
}

// Append appends the CAR of a repo with records, which are sorted by path: the commit,
// the nodes of the tree from its root on, and the records. It returns the digest of the
// tree's root.
func (r *Repo) Append(dst []byte, did, rev, sig []byte, records []RepoRecord) (car []byte, data Link) {
	data = r.Root(records)
	commit := NewBlock(AppendCommitBlock(nil, did, rev, sig, &data))
	return r.AppendCAR(dst, &commit, records), data
}

// Root builds the tree of a repo with records, and returns the digest of its root.
func (r *Repo) Root(records []RepoRecord) Link {
	r.nodes, r.layers = r.nodes[:0], r.layers[:0]
	top := 0
	for i := range records {
		r.layers = append(r.layers, layer(records[i].Path))
		top = max(top, r.layers[i])
	}
	return r.node(records, r.layers, top)
}

// AppendCAR appends the CAR of a commit, of the last built tree, and of its records.
func (r *Repo) AppendCAR(dst []byte, commit *Block, records []RepoRecord) []byte {
	dst = AppendCARHead(dst, &commit.CID)
	dst = AppendSection(dst, &commit.CID, commit.Bytes)
	for i := len(r.nodes) - 1; i >= 0; i-- {
		dst = AppendSection(dst, &r.nodes[i].CID, r.nodes[i].Bytes)
	}
	for i := range records {
		dst = AppendSection(dst, &records[i].CID, records[i].Bytes)
	}
	return dst
}

// layer returns the layer of the tree that a key belongs to: the number of pairs of
// leading zero bits in its hash.
func layer(key string) int {
	sum := sha256.Sum256([]byte(key))
	zeros := 0
	for _, b := range sum {
		zeros += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return zeros / 2
}

// node builds the node of a layer that holds the records of that layer, with the records
// of lower layers in subtrees. It returns the digest of its CID.
func (r *Repo) node(records []RepoRecord, layers []int, at int) Link {
	// subtree builds the subtree of the records before the next one of this layer.
	next := 0
	subtree := func() (l *Link) {
		start := next
		for next < len(records) && layers[next] < at {
			next++
		}
		if next == start {
			return nil
		}
		node := r.node(records[start:next], layers[start:next], at-1)
		return &node
	}
	entries := 0
	for _, l := range layers {
		if l == at {
			entries++
		}
	}
	left := subtree()
	body := wire.AppendHead([]byte("\xa2ae"), 4, uint64(entries))
	before := ""
	for next < len(records) {
		one := &records[next]
		next++
		shared := 0
		for shared < len(before) && shared < len(one.Path) && before[shared] == one.Path[shared] {
			shared++
		}
		rest := one.Path[shared:]
		body = append(wire.AppendHead(append(body, "\xa4ak"...), 2, uint64(len(rest))), rest...)
		body = wire.AppendHead(append(body, "ap"...), 0, uint64(shared))
		body = appendTree(append(body, "at"...), subtree())
		body = AppendLink(append(body, "av"...), &one.CID)
		before = one.Path
	}
	body = appendTree(append(body, "al"...), left)
	b := NewBlock(body)
	r.nodes = append(r.nodes, b)
	return b.CID
}

func appendTree(dst []byte, l *Link) []byte {
	if l == nil {
		return append(dst, 0xf6)
	}
	return AppendLink(dst, l)
}
