package dict

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomPosts draws posts of a group, by what identifies them.
func randomPosts(rng *rand.Rand, n int) map[Post]ID {
	posts := map[Post]ID{}
	for range n {
		p := Post{At: uint32(rng.IntN(40)), Author: max(randomID(rng), 1)}
		if rng.IntN(2) == 0 {
			p.At = rng.Uint32N(1 << postGroupBits)
		}
		if rng.IntN(2) == 0 {
			p.Author = author + ID(rng.IntN(3))
		}
		posts[p] = max(randomID(rng), 1)
	}
	return posts
}

func rowOfPosts(posts map[Post]ID) (v []byte) {
	var w PostWriter
	for _, p := range slices.SortedFunc(maps.Keys(posts), Post.Compare) {
		p.ID = posts[p]
		v = w.Append(v, p)
	}
	return v
}

func postsOf(t *testing.T, v []byte) map[Post]ID {
	t.Helper()
	posts := map[Post]ID{}
	if err := EachPost(v, func(p Post) bool {
		id := p.ID
		p.ID = None
		posts[p] = id
		return true
	}); err != nil {
		t.Fatalf("%x: %v", v, err)
	}
	return posts
}

// TestPostGroups: groups have the posts that were written, and any grouping of folds keeps the newest id of each.
func TestPostGroups(t *testing.T) {
	changed := 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		want := map[Post]ID{}
		var values [][]byte
		for range 1 + rng.IntN(6) {
			posts := randomPosts(rng, rng.IntN(12))
			for p := range want {
				if rng.IntN(8) == 0 {
					posts[p] = max(randomID(rng), 1)
					changed++
				}
			}
			v := rowOfPosts(posts)
			if got := postsOf(t, v); !maps.Equal(got, posts) {
				t.Fatalf("seed %d: %x has %v, want %v", seed, v, got, posts)
			}
			values = append(values, v)
			maps.Copy(want, posts)
		}
		key := AppendPostGroupKey(nil, 5)
		whole, err := Merger{}.Fold([]byte("y"), key, values, true)
		if err != nil || whole[0] != 'y' || !bytes.Equal(whole[1:], rowOfPosts(want)) {
			t.Fatalf("seed %d: %x fold to %x, %v; want %x", seed, values, whole, err, rowOfPosts(want))
		}
		var f PostFolder
		for len(values) > 1 {
			i := rng.IntN(len(values) - 1)
			n := min(2+rng.IntN(3), len(values)-i)
			v, err := f.Fold(nil, values[i:i+n])
			if err != nil {
				t.Fatal(err)
			}
			values = slices.Replace(values, i, i+n, v)
		}
		if parts, err := f.Fold(nil, values); err != nil || !bytes.Equal(parts, whole[1:]) {
			t.Fatalf("seed %d: in parts they fold to %x, %v, want %x", seed, parts, err, whole[1:])
		}
	}
	if changed < 500 {
		t.Errorf("only %d ids were changed", changed)
	}
}

// TestEachPostStops: EachPost reads no further than the callback wants.
func TestEachPostStops(t *testing.T) {
	v := append(rowOfPosts(map[Post]ID{{At: 1, Author: 7}: 3, {At: 1, Author: 9}: 3}), 0x80)
	calls := 0
	if err := EachPost(v, func(Post) bool { calls++; return calls < 2 }); err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := EachPost(v, func(Post) bool { return true }); !errors.Is(err, ErrPosts) {
		t.Errorf("a truncated post is read: %v", err)
	}
}

// TestPostsRefused decodes malformed post groups.
func TestPostsRefused(t *testing.T) {
	two := []byte{1, 2, 2, 0, 0, 2} // of one author at one time
	for name, v := range map[string][]byte{
		"a truncated time":                {0x80},
		"no author":                       {1},
		"a truncated author":              {1, 0x80},
		"no id":                           {1, 2},
		"a truncated id":                  {1, 2, 0x80},
		"a time of the next group":        {0x80, 0x80, 0x20, 2, 2},
		"a time far beyond":               {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 2},
		"times that add up to another":    {0xff, 0xff, 0x1f, 2, 2, 1, 0, 2},
		"a post twice":                    two,
		"authors that descend":            {1, 8, 2, 0, 1, 2},
		"no id of the first":              {1, 2, 0},
		"no id of the second":             {1, 2, 2, 1, 0, 1},
		"no author of the first":          {1, 0, 2},
		"an author of eleven bytes":       append([]byte{1}, bytes.Repeat([]byte{0x80}, 11)...),
		"an id of more than eight bytes ": append([]byte{1, 2}, bytes.Repeat([]byte{0xff}, 10)...),
	} {
		if err := EachPost(v, func(Post) bool { return true }); !errors.Is(err, ErrPosts) {
			t.Errorf("%s: %x is read: %v", name, v, err)
		}
		if got, err := new(PostFolder).Fold(nil, [][]byte{nil, v}); !errors.Is(err, ErrPosts) {
			t.Errorf("%s: %x folds to %x, %v", name, v, got, err)
		}
	}
	for _, key := range [][]byte{nil, {KeyPosts}, {KeyPosts, 0, 0, 0}, {KeyPosts, 0, 0, 0, 0, 0}, {KeyID, 0, 0, 0, 0}, {KeyPosts, 0x20, 0, 0, 0}} {
		if g, err := ParsePostGroupKey(key); !errors.Is(err, ErrPosts) {
			t.Errorf("key %x is of group %d: %v", key, g, err)
		}
	}
}

// TestPostsOfGroups: a post's TID and its form have the same place in the same group, and come back from it. The order of groups and
// of their posts is that of the forms.
func TestPostsOfGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 11))
	type placed struct {
		form []byte
		g    PostGroup
		p    Post
	}
	var all []placed
	grouped, others := 0, 0
	for range 20_000 {
		tid, collection, by := rng.Uint64()>>1, byte(0), randomID(rng)
		switch rng.IntN(6) {
		case 0: // any
		case 1:
			tid, collection = longTID(rng.Uint64N(1<<48)), 1
		default:
			tid = longTID(rng.Uint64N(1 << 48))
		}
		form := AppendPackedURI(nil, tid, by, collection)
		g, p, ok := SplitPost(form)
		h, at, is := PostGroupOf(tid, collection)
		if ok != is || ok && (h != g || at != p.At || p.Author != by || p.ID != None) {
			t.Fatalf("%x is %+v of group %d, %v; its TID says %d of %d, %v", form, p, g, ok, at, h, is)
		}
		if !ok {
			others++
			continue
		}
		grouped++
		if got := g.AppendForm([]byte("x"), p); string(got[1:]) != string(form) || g.TID(p) != tid {
			t.Fatalf("%x, TID %x, comes back as %x, %x", form, tid, got[1:], g.TID(p))
		}
		key := AppendPostGroupKey([]byte("x"), g)
		if back, err := ParsePostGroupKey(key[1:]); err != nil || back != g || key[0] != 'x' {
			t.Fatalf("group %d has the key %x, which is of %d: %v", g, key, back, err)
		}
		if millis := int64(tid >> ClockBits / 1000); PostGroupAt(millis) != g {
			t.Fatalf("millisecond %d is in group %d, its posts in %d", millis, PostGroupAt(millis), g)
		}
		all = append(all, placed{form, g, p})
	}
	slices.SortFunc(all, func(x, y placed) int { return bytes.Compare(x.form, y.form) })
	if !slices.IsSortedFunc(all, func(x, y placed) int {
		if x.g != y.g {
			return int(x.g) - int(y.g)
		}
		return x.p.Compare(y.p)
	}) {
		t.Error("the order of posts is not that of their forms")
	}
	if grouped < 10_000 || others < 3000 {
		t.Errorf("%d grouped, %d others: too few to prove anything", grouped, others)
	}
	for _, form := range [][]byte{nil, PackDID(nil, []byte("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"))[:11], append(make([]byte, 6), 0xff, 0, 0, 0, 0, 0, 0, 0, 1), append(make([]byte, 6), 0, 0, 0, 0, 1, 0, 0, 0, 0)} {
		if _, p, ok := SplitPost(form); ok && !bytes.Equal(PostGroup(0).AppendForm(nil, p), form) && len(form) != 11 {
			t.Errorf("%x is the post %+v", form, p)
		}
	}
	if !DefaultSettings.PostGroups() || SharedSettings.PostGroups() {
		t.Error("stores with one partition have post groups, and no others")
	}
}
