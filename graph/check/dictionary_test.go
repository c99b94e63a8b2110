package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

func TestBrokenDictionary(t *testing.T) {
	// lease returns the first closed lease that has used ids.
	lease := func(b *bench) (key string, l dict.Lease) {
		key = b.first(dict.KeyLease, func(k string, v []byte) bool {
			if err := l.Decode([]byte(k), v); err != nil {
				b.t.Fatal(err)
			}
			return l.Used > 0 && l.Closed
		})
		if key == "" {
			b.t.Fatal("no lease is closed")
		}
		return key, l
	}
	testBroken(t, map[string]breakage{
		"a row of an unknown namespace": func(b *bench) string {
			b.rows["i\x07abc"] = dict.AppendID(nil, 5)
			return "dictionary row 6907616263 → 0000000005 is malformed"
		},
		"a row without an id": func(b *bench) string {
			b.rows["i\x01did:web:a.b"] = nil
			return "dictionary row 69016469643a7765623a612e62 →  is malformed"
		},
		"an id that is too long": func(b *bench) string {
			b.rows[form(alice)] = append(slices.Clone(b.rows[form(alice)]), 0)
			return fmt.Sprintf("dictionary row %x", form(alice))
		},
		"the id of another string": func(b *bench) string {
			id := b.id(zoe)
			b.rows[form(alice)] = dict.AppendID(nil, id)
			return fmt.Sprintf("did %x has id %d, which stands for %x", alice, id, zoe)
		},
		"an id without a string": func(b *bench) string {
			b.rows[form("did:web:new.com")] = dict.AppendID(nil, b.free())
			return fmt.Sprintf("has id %d, which has no string", b.free())
		},
		"a string without an id": func(b *bench) string {
			id := b.id(alice)
			delete(b.rows, form(alice))
			return fmt.Sprintf("id %d stands for %x, whose id is", id, alice)
		},
		"an invalid DID": func(b *bench) string {
			b.name(dict.DID, b.free(), []byte("nodid"))
			return `dictionary: "nodid" is not valid in namespace did`
		},
		"an unpacked DID": func(b *bench) string {
			did := strings.Replace(plc, "2", "3", 1)
			b.name(dict.DID, b.free(), []byte(did))
			return fmt.Sprintf("dictionary: %q is stored as %x; expected %x", did, did, dict.PackDID(nil, []byte(did)))
		},
		"a malformed URI": func(b *bench) string {
			uri := append(dict.AppendID(make([]byte, 8), b.id(alice)), 200)
			b.name(dict.URI, 1<<30, uri)
			return fmt.Sprintf("malformed dictionary row: %x", uri)
		},
		"a URI of an unknown author": func(b *bench) string {
			uri := dict.AppendPackedURI(nil, postTID, b.free(), 0)
			b.name(dict.URI, 1<<30, uri)
			return fmt.Sprintf("dictionary: the author %d of URI %x has no string", b.free(), uri)
		},
		"an invalid URI": func(b *bench) string {
			b.name(dict.URI, 1<<30, []byte("nouri"))
			return `dictionary: "nouri" is not valid in namespace uri`
		},
		"an unpacked URI": func(b *bench) string {
			uri := strings.Replace(post, plc, alice, 1)
			b.name(dict.URI, 1<<30, []byte(uri))
			return fmt.Sprintf("dictionary: %q is stored as %x; expected", uri, uri)
		},
		"a URI in the longer packed form": func(b *bench) string {
			form := append(dict.AppendID(make([]byte, 8), b.id(alice)), 0)
			b.name(dict.URI, 1<<30, form)
			return fmt.Sprintf("is stored as %x; expected %x", form, dict.AppendPackedURI(nil, 0, b.id(alice), 0))
		},
		"a DID in another partition": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			did := []byte("did:web:other.example.com")
			if b.Settings.PartitionOf(did) == b.Settings.PartitionOfID(b.free()) {
				b.t.Fatal("the breakage changes nothing")
			}
			b.name(dict.DID, b.free(), did)
			return fmt.Sprintf("dictionary: DID %x is in partition %d, its id %d in %d", did,
				b.Settings.PartitionOf(did), b.free(), b.Settings.PartitionOfID(b.free()))
		},
		"a group with a malformed id": func(b *bench) string {
			b.rows["s\x01\x02"] = nil
			return "dictionary row 730102 is malformed"
		},
		"a group with an unaligned id": func(b *bench) string {
			key := string(dict.AppendID([]byte{dict.KeyString, 1}, 1<<36|1))
			b.rows[key] = nil
			return fmt.Sprintf("dictionary row %x is malformed", key)
		},
		"a key with trailing bytes": func(b *bench) string {
			key := string(dict.AppendGroupKey(nil, dict.DID, b.id(alice))) + "\x01\x02"
			b.rows[key] = nil
			return fmt.Sprintf("dictionary row %x is malformed", key)
		},
		"a malformed group": func(b *bench) string {
			key := dict.AppendGroupKey(nil, dict.DID, b.free())
			b.rows[string(key)] = []byte{2 << dict.GroupBits}
			return fmt.Sprintf("dictionary row %x: %v", key, dict.ErrGroup)
		},
		"a group with duplicate entries": func(b *bench) string {
			key := dict.AppendGroupKey(nil, dict.DID, b.id(plc))
			v := b.rows[string(key)]
			b.rows[string(key)] = append(slices.Clone(v), v...)
			return fmt.Sprintf("dictionary row %x is %x%x; expected %x", key, v, v, v)
		},
		"a missing long string": func(b *bench) string {
			id := b.id(long)
			delete(b.rows, string(dict.AppendOwnKey(nil, dict.DID, id)))
			return fmt.Sprintf("has id %d, which has no string", id)
		},
		"a changed long string": func(b *bench) string {
			id := b.id(long)
			b.rows[string(dict.AppendOwnKey(nil, dict.DID, id))] = []byte(long + "m")
			return fmt.Sprintf("has id %d, which stands for %x", id, long+"m")
		},
		"a malformed lease": func(b *bench) string {
			b.rows["l\x01"] = nil
			return "lease row 6c01 is malformed"
		},
		"a lease with another number of used ids": func(b *bench) string {
			key, l := lease(b)
			l.Used++
			b.rows[key] = l.Value()
			return fmt.Sprintf("block %d of shard %d (%s) was closed with %d ids used, but %d stand for strings", l.Block, l.Shard, l.Namespace, l.Used, l.Used-1)
		},
		"a missing lease": func(b *bench) string {
			key, l := lease(b)
			delete(b.rows, key)
			return fmt.Sprintf("%d ids (%s) are in block %d of shard %d, which was never leased", l.Used, l.Namespace, l.Block, l.Shard)
		},
		"a counter that lags behind": func(b *bench) string {
			_, l := lease(b)
			b.rows[string(dict.AppendNextKey(nil, l.Namespace, l.Shard))] = make([]byte, 8)
			return fmt.Sprintf("block %d of shard %d (%s) is leased, but the shard's counter is 0000000000000000", l.Block, l.Shard, l.Namespace)
		},
		"a missing counter": func(b *bench) string {
			_, l := lease(b)
			delete(b.rows, string(dict.AppendNextKey(nil, l.Namespace, l.Shard)))
			return fmt.Sprintf("block %d of shard %d (%s) is leased, but the shard's counter is ", l.Block, l.Shard, l.Namespace)
		},
	})
}

func TestBrokenPostGroups(t *testing.T) {
	alone := func(breaks breakage) breakage {
		return func(b *bench) string {
			if b.Shared() {
				return ""
			}
			return breaks(b)
		}
	}
	testBroken(t, map[string]breakage{
		"a key that is too short": func(b *bench) string {
			b.rows["x\x01"] = []byte{1, 2, 2}
			return "post group 7801 → 010202 is malformed"
		},
		"a time that is too large": func(b *bench) string {
			b.rows["x\x20\x00\x00\x00"] = []byte{1, 2, 2}
			return "post group 7820000000 → 010202 is malformed"
		},
		"a group without posts": func(b *bench) string {
			b.rows["x\x00\x00\x00\x07"] = nil
			return "post group 7800000007 →  is malformed"
		},
		"a group in a store of several writers": func(b *bench) string {
			if !b.Shared() {
				return ""
			}
			b.rows["x\x00\x00\x00\x07"] = rowOf(dict.Post{At: 1, Author: b.id(alice), ID: 5})
			return "post group 7800000007 does not fit this store's layout"
		},
		"a truncated post": alone(func(b *bench) string {
			_, _, key, _ := b.inGroup(post)
			b.rows[key] = append(slices.Clone(b.rows[key]), 0x80)
			return fmt.Sprintf("post group %x: %v", key, dict.ErrPosts)
		}),
		"a number of more bytes than it takes": alone(func(b *bench) string {
			_, _, key, posts := b.inGroup(post)
			last := posts[len(posts)-1]
			b.rows[key] = append(rowOf(posts...), 0x81, 0, 2, 2)
			want := rowOf(append(posts, dict.Post{At: last.At + 1, Author: last.Author + 1, ID: last.ID + 1})...)
			return fmt.Sprintf("post group %x is %x; expected %x", key, b.rows[key], want)
		}),
		"the id of another post": alone(func(b *bench) string {
			g, at, key, posts := b.inGroup(post)
			other := b.id(page)
			posts[slices.IndexFunc(posts, func(p dict.Post) bool { return p.Compare(at) == 0 })].ID = other
			b.rows[key] = rowOf(posts...)
			return fmt.Sprintf("uri %x has id %d, which stands for %x", g.AppendForm(nil, at), other, page)
		}),
		"a post that is missing in its group": alone(func(b *bench) string {
			id := b.id(post)
			g, at, key, posts := b.inGroup(post)
			posts = slices.DeleteFunc(posts, func(p dict.Post) bool { return p.Compare(at) == 0 })
			b.rows[key] = rowOf(posts...)
			return fmt.Sprintf("id %d stands for %x, whose id is", id, g.AppendForm(nil, at))
		}),
		"a post that is in a group, and has a row": alone(func(b *bench) string {
			g, at, _, _ := b.inGroup(post)
			form := g.AppendForm(nil, at)
			b.rows[string(dict.KeyID)+string(rune(dict.URI))+string(form)] = dict.AppendID(nil, b.id(post))
			return fmt.Sprintf("dictionary: uri %x has a row, and is in a post group", form)
		}),
		"another post that is in a group, and has a row": alone(func(b *bench) string {
			full, at, key, posts := b.inGroup(post) // its group is full
			row := func(form []byte, id dict.ID) {
				b.rows[string(dict.KeyID)+string(rune(dict.URI))+string(form)] = dict.AppendID(nil, id)
			}
			row(full.AppendForm(nil, at), b.id(post))
			b.rows[key] = rowOf(slices.DeleteFunc(posts, func(p dict.Post) bool { return p.Compare(at) == 0 })...)
			other := "at://" + plc + "/app.bsky.feed.post/" + string(syntax.AppendTID(nil, postTID+100_000_000<<format.ClockBits))
			g, at, _, _ := b.inGroup(other)
			form := g.AppendForm(nil, at)
			row(form, b.id(other))
			return fmt.Sprintf("dictionary: uri %x has a row, and is in a post group", form)
		}),
		"a post with two ids, and another with none": alone(func(b *bench) string {
			g, at, _, _ := b.inGroup(post)
			other := "at://" + plc + "/app.bsky.feed.post/" + string(syntax.AppendTID(nil, postTID+10_000_000<<format.ClockBits))
			id := b.id(other)
			_, lost, key, posts := b.inGroup(other)
			b.rows[key] = rowOf(slices.DeleteFunc(posts, func(p dict.Post) bool { return p.Compare(lost) == 0 })...)
			form := g.AppendForm(nil, at)
			b.rows[string(dict.KeyID)+string(rune(dict.URI))+string(form)] = dict.AppendID(nil, id)
			e := dict.EntryOf(dict.URI, id, form)
			b.merge(dict.AppendGroupKey(nil, dict.URI, id), new(dict.GroupWriter).Append(nil, &e))
			return fmt.Sprintf("dictionary: uri %x has a row, and is in a post group", form)
		}),
		"a post without a string": alone(func(b *bench) string {
			g, at, key, posts := b.inGroup(post)
			at.At, at.ID = 1<<19-1, b.id(post)+1<<13
			b.rows[key] = rowOf(append(posts, at)...)
			return fmt.Sprintf("uri %x has id %d, which has no string", g.AppendForm(nil, at), at.ID)
		}),
		"a post of an unknown author": alone(func(b *bench) string {
			g, at, key, posts := b.inGroup(post)
			at.At, at.Author, at.ID = 1<<19-1, b.free(), 1<<30
			form := g.AppendForm(nil, at)
			b.rows[key] = rowOf(append(posts, at)...)
			return fmt.Sprintf("dictionary: the author %d of URI %x has no string", b.free(), form)
		}),
	})
}

// TestFullPostGroup: a post may have a row instead of a place in its group, which may be full.
func TestFullPostGroup(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		if h.layout.Shared() {
			return
		}
		b := h.bench(t)
		g, at, key, posts := b.inGroup(post)
		if len(posts) < 2 {
			t.Fatalf("the group has %d posts", len(posts))
		}
		b.rows[string(dict.KeyID)+string(rune(dict.URI))+string(g.AppendForm(nil, at))] = dict.AppendID(nil, b.id(post))
		posts = slices.DeleteFunc(posts, func(p dict.Post) bool { return p.Compare(at) == 0 })
		b.rows[key] = rowOf(posts...)
		if found := b.problems(); len(found) > 0 {
			t.Errorf("the check reports %q", found)
		}
	})
}

// TestDictionary: Dictionary counts the strings and calls tick for every row. An error of tick
// ends it.
func TestDictionary(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		rows := 0
		want := [3]int64{}
		for k := range h.rows {
			switch k[0] {
			case dict.KeyID:
				want[k[1]]++
				rows++
			case dict.KeyPosts:
				rows++
				if err := dict.EachPost(h.rows[k], func(dict.Post) bool { want[dict.URI]++; return true }); err != nil {
					t.Fatal(err)
				}
			case dict.KeyString, dict.KeyLease:
				rows++
			}
		}
		ticks := 0
		report := func(p string) { t.Error(p) }
		b := h.bench(t)
		got, err := Dictionary(b.table, h.layout.Settings, kinds.BuiltIn, report, func() error { ticks++; return nil })
		if err != nil || got != want || ticks != rows {
			t.Errorf("%v strings, want %v; %d rows, want %d: %v", got, want, ticks, rows, err)
		}
		stop := errors.New("stop")
		for after := range 5 {
			n := after * ticks / 5
			left := n
			_, err := Dictionary(b.table, h.layout.Settings, kinds.BuiltIn, report, func() error {
				if left--; left < 0 {
					return stop
				}
				return nil
			})
			if !errors.Is(err, stop) || left != -1 {
				t.Errorf("stopped after %d rows: %d more, %v", n, -left, err)
			}
		}
		// Only a closed lease has a number of used ids to compare.
		for k, v := range h.rows {
			var l dict.Lease
			if k[0] == dict.KeyLease && (l.Decode([]byte(k), v) != nil || !l.Closed) {
				t.Errorf("lease %x is not closed", k)
			}
		}
	})
}
