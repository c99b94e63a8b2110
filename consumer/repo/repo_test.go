package repo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/bluesky-social/indigo/atproto/atdata"
	indigo "github.com/bluesky-social/indigo/atproto/repo"
	"github.com/ipfs/go-cid"

	"skein.blue/consumer/repo"
	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/synth"
)

const (
	did = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	rev = "3mb2kxx5ts22a"
)

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// randomRecords makes the records of a repo: of all kinds, with posts among them, some
// malformed.
func randomRecords(rng *rand.Rand, n int) []synth.RepoRecord {
	records := map[string][]byte{}
	for range n {
		rkey := dict.AppendTID(nil, uint64(3<<60)+rng.Uint64N(1<<58))
		if rng.IntN(20) == 0 {
			rkey = fmt.Appendf(nil, "self-%d", rng.IntN(100))
		}
		if rng.IntN(3) == 0 {
			text := bytes.Repeat([]byte("no subject here "), 1+rng.IntN(20))
			post := synth.Map{{Key: "text", Value: string(text)}, {Key: "$type", Value: "app.bsky.feed.post"}}
			if rng.IntN(3) == 0 {
				to := fmt.Sprintf("at://did:web:n%d.example.com/app.bsky.feed.post/%s", rng.IntN(1000), rkey)
				post = append(post, synth.Pair{Key: "reply", Value: synth.Map{{Key: "parent", Value: synth.Map{{Key: "uri", Value: to}}}}})
			}
			records["app.bsky.feed.post/"+string(rkey)] = synth.CBOR(nil, post)
			continue
		}
		k := &kinds.All[rng.IntN(len(kinds.All))]
		subject := fmt.Appendf(nil, "did:web:n%d.example.com", rng.IntN(1000))
		if k.To.Is().String() == "uri" {
			subject = fmt.Appendf(nil, "at://did:web:n%d.example.com/app.bsky.feed.post/%s", rng.IntN(1000), rkey)
		}
		if rng.IntN(20) == 0 {
			subject = nil
		}
		if !k.HasSets() { // a listitem has two subjects
			list := fmt.Appendf(nil, "at://did:web:n%d.example.com/app.bsky.graph.list/x", rng.IntN(1000))
			records[k.Collection+"/"+string(rkey)] = synth.ListItem(fmt.Sprintf("did:web:n%d.example.com", rng.IntN(1000)), string(list[:rng.IntN(2)*len(list)]), "2026-01-02T03:04:05.678Z")
			continue
		}
		records[k.Collection+"/"+string(rkey)] = synth.AppendRecord(nil, k, subject, []byte("bafyreidwaivazkwu67xztlmuobx35hs2lnfh3kolmgfmucldvhd3sgzcqi"), []byte("2026-01-02T03:04:05.678Z"))
	}
	list := make([]synth.RepoRecord, 0, len(records))
	for _, path := range slices.Sorted(maps.Keys(records)) {
		list = append(list, synth.RepoRecord{Path: path, Block: synth.NewBlock(records[path])})
	}
	return list
}

// replies is a table with posts and their replies in addition to the built-in kinds.
var replies = func() *kinds.Table {
	more, err := kinds.Parse("app.bsky.feed.post self at-uri posts\napp.bsky.feed.post reply.parent.uri at-uri repliedTo repliers replies")
	if err != nil {
		panic(err)
	}
	t, err := kinds.Configure(kinds.BuiltIn, more)
	if err != nil {
		panic(err)
	}
	return t
}()

func car(records []synth.RepoRecord) []byte {
	b, _ := new(synth.Repo).Append(nil, []byte(did), []byte(rev), []byte("signature"), records)
	return b
}

// reader returns a Reader of the built-in kinds whose memory no test exhausts.
func reader() *repo.Reader {
	return &repo.Reader{Kinds: kinds.BuiltIn, Memory: repo.NewMemory(1 << 40)}
}

// read reads a CAR with this package: a line for each record.
func read(r *repo.Reader, in io.Reader, most int64) (lines []string, err error) {
	if err := r.Read(context.Background(), in, most); err != nil {
		return nil, err
	}
	err = r.Walk(context.Background(), func(k kinds.Kind, rkey, subject []byte) {
		lines = append(lines, fmt.Sprintf("%s %s %s", k, rkey, subject))
	})
	return lines, err
}

// oracle reads a CAR with indigo's packages.
func oracle(t testing.TB, table *kinds.Table, b []byte) (lines []string) {
	t.Helper()
	commit, r, err := indigo.LoadRepoFromCAR(context.Background(), bytes.NewReader(b))
	must(t, err)
	if commit.DID != did || commit.Rev != rev {
		t.Fatalf("indigo reads %+v", commit)
	}
	err = r.MST.Walk(func(key []byte, val cid.Cid) error {
		of := table.CollectionOf(key)
		if of == nil {
			return nil
		}
		block, err := r.RecordStore.Get(context.Background(), val)
		if err != nil {
			return err
		}
		record, err := atdata.UnmarshalCBOR(block.RawData())
		if err != nil {
			return err
		}
		for _, k := range of.Kinds {
			var v any = record
			for _, key := range k.To.Field {
				m, _ := v.(map[string]any)
				v = m[key]
			}
			subject, ok := v.(string)
			if k.Kind.IsSelf() {
				subject, ok = "at://"+did+"/"+string(key), true
			}
			if !ok && k.Optional {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s %s", k.Kind, key[len(of.NSID)+1:], subject))
		}
		return nil
	})
	must(t, err)
	return lines
}

// The Reader finds the same records as indigo's packages in repos of many sizes, however
// the bytes arrive; and package synth builds the tree that indigo reads.
func TestAgainstIndigo(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		records := randomRecords(rng, []int{0, 1, 2, 10, 100, 1000}[seed%6])
		b := car(records)
		table := []*kinds.Table{kinds.BuiltIn, replies}[seed%2]
		want := oracle(t, table, b)
		var r *repo.Reader
		for name, in := range map[string]io.Reader{"whole": bytes.NewReader(b), "by bytes": iotest.OneByteReader(bytes.NewReader(b)), "by halves": iotest.HalfReader(bytes.NewReader(b)), "end with data": iotest.DataErrReader(bytes.NewReader(b))} {
			r = reader()
			r.Kinds = table
			got, err := read(r, in, int64(len(b)))
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, %s: %d records, want %d: %v", seed, name, len(got), len(want), err)
			}
			if string(r.DID) != did || string(r.Rev) != rev {
				t.Fatalf("repo of %s at %s", r.DID, r.Rev)
			}
		}
		commit, tree, err := indigo.LoadRepoFromCAR(t.Context(), bytes.NewReader(b))
		must(t, err)
		if root, err := tree.MST.RootCID(); err != nil || *root != commit.Data || !bytes.Equal(r.Data, root.Hash()[2:]) {
			t.Fatalf("seed %d: the root is %x, indigo says %v: %v", seed, r.Data, root, err)
		}
		if _, err := read(reader(), bytes.NewReader(b), int64(len(b)-1)); !errors.Is(err, repo.ErrTooLarge) {
			t.Fatalf("one byte too many: %v", err)
		}
	}
}

// sections splits a CAR into its head and its blocks.
func sections(t testing.TB, b []byte) (head []byte, blocks []synth.Block) {
	t.Helper()
	must(t, wire.EachBlock(b, func(id, block []byte) { blocks = append(blocks, synth.NewBlock(block)) }))
	return b[:synth.CARHeadLen], blocks
}

func join(head []byte, blocks []synth.Block) []byte {
	out := slices.Clone(head)
	for i := range blocks {
		out = synth.AppendSection(out, &blocks[i].CID, blocks[i].Bytes)
	}
	return out
}

// Blocks may come in any order, twice, and with others among them. If a needed block is
// missing, Read or Walk fails.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	records := randomRecords(rng, 200)
	b := car(records)
	want, err := read(reader(), bytes.NewReader(b), 1<<30)
	must(t, err)
	head, blocks := sections(t, b)
	for range 20 {
		mixed := slices.Clone(blocks)
		mixed = append(mixed, blocks[rng.IntN(len(blocks))], synth.NewBlock([]byte("\xa1fnobodyeneeds")))
		rng.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if got, err := read(reader(), bytes.NewReader(join(head, mixed)), 1<<30); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d records, want %d: %v", len(got), len(want), err)
		}
	}
	posts, times := map[[32]byte]bool{}, map[[32]byte]int{}
	for i := range blocks {
		times[blocks[i].CID]++
	}
	for _, rec := range records {
		if kinds.BuiltIn.CollectionOf([]byte(rec.Path)) == nil {
			posts[rec.CID] = true
		}
	}
	for i := range blocks {
		_, err := read(reader(), bytes.NewReader(join(head, slices.Delete(slices.Clone(blocks), i, i+1))), 1<<30)
		if needed := !posts[blocks[i].CID] && times[blocks[i].CID] == 1; needed && !errors.Is(err, repo.ErrMissing) || !needed && err != nil {
			t.Fatalf("without block %d (needed: %v): %v", i, needed, err)
		}
	}
}

// A CAR that is cut anywhere, or has a wrong bit, fails or yields the same records.
func TestDamaged(t *testing.T) {
	b := car(randomRecords(rand.New(rand.NewPCG(3, 3)), 10))
	want, err := read(reader(), bytes.NewReader(b), 1<<30)
	must(t, err)
	for n := range b {
		if got, err := read(reader(), bytes.NewReader(b[:n]), 1<<30); err == nil && !slices.Equal(got, want) {
			t.Fatalf("cut at %d: %d records", n, len(got))
		}
		if _, err := read(reader(), io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(errors.New("reset"))), 1<<30); err == nil {
			t.Fatalf("a connection that breaks at %d counts as the end", n)
		}
		for bit := range 8 {
			c := bytes.Clone(b)
			c[n] ^= 1 << bit
			if got, err := read(reader(), bytes.NewReader(c), 1<<30); err == nil && !slices.Equal(got, want) {
				t.Fatalf("bit %d of %d: %d records", bit, n, len(got))
			}
		}
	}
}

// Malformed trees are errors.
func TestMalformedTrees(t *testing.T) {
	leaf := synth.NewBlock(synth.AppendRecord(nil, &kinds.All[0], []byte("did:web:a.example.com"), nil, []byte("2026")))
	link := func(b synth.Block) []byte { l := b.CID; return synth.AppendLink(nil, &l) }
	entry := func(prefix byte, key string, right []byte) []byte {
		e := append(wire.AppendHead([]byte("\xa4ak"), 2, uint64(len(key))), key...)
		e = append(append(append(e, "ap"...), prefix), "at"...)
		if right == nil {
			right = []byte{0xf6}
		}
		return append(append(append(e, right...), "av"...), link(leaf)...)
	}
	node := func(left []byte, entries ...[]byte) synth.Block {
		b := wire.AppendHead([]byte("\xa2ae"), 4, uint64(len(entries)))
		b = append(b, bytes.Join(entries, nil)...)
		if left == nil {
			left = []byte{0xf6}
		}
		return synth.NewBlock(append(append(b, "al"...), left...))
	}
	const a, b = "app.bsky.graph.follow/a", "app.bsky.graph.follow/b"
	low := node(nil, entry(0, a, nil))
	deep := []synth.Block{low}
	for range 300 {
		deep = append(deep, node(link(deep[len(deep)-1])))
	}
	for name, c := range map[string]struct {
		root synth.Block
		more []synth.Block
		want error
	}{
		"a tree":                     {node(nil, entry(0, a, nil), entry(22, "b", nil)), nil, nil},
		"two levels":                 {node(link(low), entry(0, b, nil)), []synth.Block{low}, nil},
		"descending keys":            {node(nil, entry(0, b, nil), entry(22, "a", nil)), nil, repo.ErrTree},
		"a key twice":                {node(nil, entry(0, a, nil), entry(22, "a", nil)), nil, repo.ErrTree},
		"a subtree twice":            {node(link(low), entry(0, b, link(low))), []synth.Block{low}, repo.ErrTree},
		"a prefix of nothing":        {node(nil, entry(3, a, nil)), nil, repo.ErrTree},
		"a prefix too long":          {node(nil, entry(0, a, nil), entry(24, "b", nil)), nil, repo.ErrTree},
		"an entry without a key":     {node(nil, entry(0, "", nil)), nil, repo.ErrTree},
		"too deep":                   {deep[len(deep)-1], deep, repo.ErrTree},
		"a record instead of a node": {leaf, nil, repo.ErrTree},
		"a missing subtree":          {node(link(low), entry(0, b, nil)), nil, repo.ErrMissing},
		"a byte after the node":      {synth.NewBlock(append(node(nil).Bytes, 0)), nil, repo.ErrTree},
		"a map with three keys":      {synth.NewBlock([]byte("\xa3ae\x80al\xf6am\xf6")), nil, repo.ErrTree},
		"entries not an array":       {synth.NewBlock([]byte("\xa2ae\xf6al\xf6")), nil, repo.ErrTree},
	} {
		root := c.root.CID
		commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), []byte(rev), nil, &root))
		all := append([]synth.Block{commit, c.root, leaf}, c.more...)
		_, err := read(reader(), bytes.NewReader(synth.CAR(commit.CID, all...)), 1<<30)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Malformed commits are errors.
func TestMalformedCommits(t *testing.T) {
	root := synth.NewBlock([]byte("\xa2ae\x80al\xf6"))
	data := root.CID
	for name, b := range map[string][]byte{
		"no DID":    synth.AppendCommitBlock(nil, []byte("did"), []byte(rev), nil, &data),
		"no rev":    synth.AppendCommitBlock(nil, []byte(did), []byte("rev"), nil, &data),
		"not a map": {0x80},
		"cut":       synth.AppendCommitBlock(nil, []byte(did), []byte(rev), nil, &data)[:60],
	} {
		commit := synth.NewBlock(b)
		if _, err := read(reader(), bytes.NewReader(synth.CAR(commit.CID, commit, root)), 1<<20); !errors.Is(err, repo.ErrCommit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{"nothing": nil, "a web page": []byte("<html>not found</html>"), "an endless length": bytes.Repeat([]byte{0xff}, 100)} {
		if _, err := read(reader(), bytes.NewReader(b), 1<<20); !errors.Is(err, repo.ErrTruncated) && !errors.Is(err, repo.ErrCAR) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(car(randomRecords(rand.New(rand.NewPCG(3, 3)), 5)))
	f.Add(car(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := reader()
		var last []byte
		if r.Read(context.Background(), bytes.NewReader(b), 1<<20) != nil {
			return
		}
		_ = r.Walk(context.Background(), func(k kinds.Kind, rkey, subject []byte) {
			path := append([]byte(k.Info().Collection+"/"), rkey...)
			if c := bytes.Compare(path, last); c < 0 || c == 0 && k != kinds.ListItem || len(subject) > 0 && !k.Info().To.Form.Valid(subject) {
				t.Errorf("%s after %s has subject %q", path, last, subject)
			}
			last = path
		})
	})
}

// Reads a CAR up to the subjects of all records of indexed collections, with this package
// and with indigo's.
//
//	go test ./consumer/repo -run xxx -bench Read -benchmem
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		data := car(randomRecords(rand.New(rand.NewPCG(3, 3)), n))
		b.Run(fmt.Sprintf("skein/%d", n), func(b *testing.B) {
			in := bytes.NewReader(data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(data)
				r := reader()
				must(b, errors.Join(r.Read(context.Background(), in, 1<<30), r.Walk(context.Background(), func(kinds.Kind, []byte, []byte) {})))
			}
		})
		b.Run(fmt.Sprintf("indigo/%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				oracle(b, kinds.BuiltIn, data)
			}
		})
	}
}
