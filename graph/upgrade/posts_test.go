package upgrade

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// grouped is the rows of a store in format.FormatRowGroups with some URIs, and what an upgrade makes of them.
type grouped struct {
	old, want map[string]string
	groups    map[dict.PostGroup][]dict.Post
}

func newGrouped(settings dict.Settings) *grouped {
	h := format.Header{Version: format.FormatRowGroups, Settings: settings, Kinds: kinds.BuiltIn.Numbers()}
	g := &grouped{map[string]string{}, map[string]string{}, map[dict.PostGroup][]dict.Post{}}
	g.old[string(format.HeaderKey)] = string(h.Append(nil))
	h.Version = format.Newest
	g.want[string(format.HeaderKey)] = string(h.Append(nil))
	return g
}

func idKey(form []byte) string { return string(dict.KeyID) + string(rune(dict.URI)) + string(form) }

// stays adds a row that no upgrade changes.
func (g *grouped) stays(key string, value []byte) {
	g.old[key], g.want[key] = string(value), string(value)
}

// moves adds a post, which the upgrade moves.
func (g *grouped) moves(group dict.PostGroup, p dict.Post) {
	key := idKey(group.AppendForm(nil, p))
	if g.old[key] == "" {
		g.old[key] = string(dict.AppendID(nil, p.ID))
		g.groups[group] = append(g.groups[group], p)
	}
}

// wanted returns all rows after the upgrade.
func (g *grouped) wanted() map[string]string {
	for group, posts := range g.groups {
		slices.SortFunc(posts, dict.Post.Compare)
		var w dict.PostWriter
		var row []byte
		for _, p := range posts[:min(len(posts), dict.MaxPosts)] {
			row = w.Append(row, p)
		}
		g.want[string(dict.AppendPostGroupKey(nil, group))] = string(row)
		for _, p := range posts[min(len(posts), dict.MaxPosts):] {
			key := idKey(group.AppendForm(nil, p))
			g.want[key] = g.old[key]
		}
	}
	return g.want
}

// TestPostsAfterCrashes interrupts the step that groups posts at each of its writes. Some writes end within a group, and a group is too
// large. The next run continues it: each post is in its group once, or has its row, and nothing else has changed.
func TestPostsAfterCrashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	g := newGrouped(dict.DefaultSettings)
	id := func() dict.ID { return 1 + dict.ID(rng.Uint64N(1<<40)) }
	for n := range 3 * sliceKeys {
		p := dict.Post{At: rng.Uint32N(1 << 19), Author: id(), ID: id()}
		if group := dict.PostGroup(100_000_000 + n/7); n%3 == 0 {
			g.moves(100_000_500, p) // nearly as many as fit
		} else {
			g.moves(group, p)
		}
	}
	for range dict.MaxPosts + 3000 {
		g.moves(100_000_300, dict.Post{At: rng.Uint32N(1 << 19), Author: id(), ID: id()})
	}
	for range 100 {
		p := dict.Post{At: rng.Uint32N(1 << 19), Author: id()}
		g.stays(idKey(dict.AppendPackedURI(nil, dict.PostGroup(100_000_000+rng.IntN(500)).TID(p)+32, p.Author, 0)), dict.AppendID(nil, id()))
		g.stays(string(dict.KeyID)+string(rune(dict.DID))+string(dict.PostGroup(100_000_000).AppendForm(nil, p)), dict.AppendID(nil, id()))
	}
	g.stays(idKey(dict.AppendRaw(nil, dict.URI, []byte("at://abc.de"))), dict.AppendID(nil, id())) // as long as a post's form, and padded
	want := g.wanted()
	crashes := crashAnywhere(t, func(f memkv.Faults) kv.Store { return holding(t, g.old, f) }, func(n int, got map[string]string) {
		sameRows(t, n, got, want)
	})
	if crashes < 5 || len(g.groups[100_000_300]) < dict.MaxPosts+2000 || len(g.groups) < 500 {
		t.Errorf("%d crashes, %d groups: too few to prove anything", crashes, len(g.groups))
	}
}

// TestMalformedPostsStay: a malformed row, or one of another URI, stays where it is. skein check then reports it as before.
func TestMalformedPostsStay(t *testing.T) {
	g := newGrouped(dict.DefaultSettings)
	p := dict.Post{At: 5, Author: 7}
	form := dict.PostGroup(9).AppendForm(nil, p)
	g.stays(idKey(form), nil)
	for i, v := range [][]byte{{1, 2, 3}, {0, 0, 0, 0, 1, 0}, {0, 0, 0, 0, 0}, {0xfe, 0, 0, 0, 0}} {
		p.At = uint32(10 + i)
		g.stays(idKey(dict.PostGroup(9).AppendForm(nil, p)), v)
	}
	g.stays(idKey(append(form[:6:6], 0, 0, 0, 0, 0)), dict.AppendID(nil, 4))                // the author has no id
	g.stays(idKey(append(form[:6:6], 0xff, 0, 0, 0, 0, 0, 0, 0, 1)), dict.AppendID(nil, 4)) // one of five bytes, in nine
	g.stays(idKey(nil), dict.AppendID(nil, 4))
	g.moves(9, dict.Post{At: 6, Author: 7, ID: 8})
	g.moves(9, dict.Post{At: 20, Author: 7, ID: 9})
	store := holding(t, g.old, memkv.Faults{})
	if _, err := Run(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := everything(t, store), g.wanted(); !maps.Equal(got, want) {
		t.Errorf("the store has %q, want %q", got, want)
	}
}

// TestSeveralWritersKeepTheirPosts: a store with several writers has no post groups, and the step visits none of its keys.
func TestSeveralWritersKeepTheirPosts(t *testing.T) {
	g := newGrouped(dict.SharedSettings)
	g.stays(idKey(dict.PostGroup(9).AppendForm(nil, dict.Post{At: 5, Author: 7})), dict.AppendID(nil, 8))
	store := holding(t, g.old, memkv.Faults{})
	if _, err := Run(t.Context(), store, func(keys int64) { t.Errorf("%d keys were visited", keys) }); err != nil {
		t.Fatal(err)
	}
	if got := everything(t, store); !maps.Equal(got, g.want) {
		t.Errorf("the store has %q, want %q", got, g.want)
	}
}
