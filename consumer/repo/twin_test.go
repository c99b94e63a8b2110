package repo_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/consumer/repo"
	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/synth"
)

// randomTree makes a tree from keys, with prefixes that are often shorter than what two keys
// share. It appends the blocks of the tree, and returns its root.
func randomTree(rng *rand.Rand, blocks *[]synth.Block, keys []string, leaf *synth.Link) *synth.Link {
	if len(keys) == 0 {
		return nil
	}
	// The keys of this node; those between them are in subtrees.
	var at []int
	for i := range keys {
		if rng.IntN(3) == 0 {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		at = []int{rng.IntN(len(keys))}
	}
	left := randomTree(rng, blocks, keys[:at[0]], leaf)
	b := wire.AppendHead([]byte("\xa2ae"), 4, uint64(len(at)))
	before := ""
	for n, i := range at {
		end := len(keys)
		if n+1 < len(at) {
			end = at[n+1]
		}
		shared := 0
		for shared < len(before) && shared < len(keys[i])-1 && before[shared] == keys[i][shared] {
			shared++
		}
		if rng.IntN(2) == 0 {
			shared = rng.IntN(shared + 1)
		}
		rest := keys[i][shared:]
		b = append(wire.AppendHead(append(b, "\xa4ak"...), 2, uint64(len(rest))), rest...)
		b = append(wire.AppendHead(append(b, "ap"...), 0, uint64(shared)), "at"...)
		b = appendLink(b, randomTree(rng, blocks, keys[i+1:end], leaf))
		b = synth.AppendLink(append(b, "av"...), leaf)
		before = keys[i]
	}
	node := synth.NewBlock(appendLink(append(b, "al"...), left))
	*blocks = append(*blocks, node)
	return &node.CID
}

func appendLink(dst []byte, l *synth.Link) []byte {
	if l == nil {
		return append(dst, 0xf6)
	}
	return synth.AppendLink(dst, l)
}

// The walk over random trees finds exactly the keys that the test has in full, and fails if
// keys are out of order anywhere in the tree.
func TestKeysAgainstTwin(t *testing.T) {
	leaf := synth.NewBlock(follow(0))
	refused := 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		set := map[string]bool{}
		for range 1 + rng.IntN(12) {
			rkey := make([]byte, 1+rng.IntN(4))
			for i := range rkey {
				rkey[i] = "aab/"[rng.IntN(4)]
			}
			set["app.bsky.graph."+[]string{"follow/", "block/", "x/"}[rng.IntN(3)]+string(rkey)] = true
		}
		keys := slices.Sorted(maps.Keys(set))
		if i := rng.IntN(len(keys)); rng.IntN(2) == 0 && i > 0 {
			keys[i-1], keys[i] = keys[i], keys[i-1]
		}
		blocks := []synth.Block{leaf}
		root := randomTree(rng, &blocks, keys, &leaf.CID)
		commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), []byte(rev), nil, root))
		got, err := read(reader(), bytes.NewReader(synth.CAR(commit.CID, append(blocks, commit)...)), 1<<20)
		var want []string
		for _, k := range keys {
			kind, rkey, _ := bytes.Cut([]byte(k[len("app.bsky.graph."):]), []byte("/"))
			if string(kind) != "x" && !bytes.Contains(rkey, []byte("/")) {
				want = append(want, fmt.Sprintf("%s %s did:web:a.example.com", kind, rkey))
			}
		}
		sorted := slices.IsSorted(keys)
		if !sorted {
			refused++
		}
		if sorted && (err != nil || !slices.Equal(got, want)) || !sorted && !errors.Is(err, repo.ErrTree) {
			t.Fatalf("seed %d: %q: %q, %v", seed, keys, got, err)
		}
	}
	if refused < 1000 {
		t.Errorf("only %d trees were out of order", refused)
	}
}
