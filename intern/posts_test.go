package intern

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/syntax"
)

// postsIn counts the posts of the shortest form that are in groups, and those that have rows. None may be in both.
func postsIn(t *testing.T, store kv.Store) (grouped, alone int) {
	t.Helper()
	viewOf(t, store, func(r kv.Reader) error {
		in := map[string]bool{}
		err := kv.ScanPrefix(r, []byte{dict.KeyPosts}, func(k, v []byte) error {
			g, err := dict.ParsePostGroupKey(k)
			if err != nil {
				return err
			}
			return dict.EachPost(v, func(p dict.Post) bool { in[string(g.AppendForm(nil, p))] = true; return true })
		})
		if err != nil {
			return err
		}
		grouped = len(in)
		return kv.ScanPrefix(r, []byte{dict.KeyID, byte(dict.URI)}, func(k, _ []byte) error {
			if _, _, ok := dict.SplitPost(k[2:]); ok {
				alone++
			}
			if in[string(k[2:])] {
				t.Errorf("%x is in a group, and has a row", k[2:])
			}
			return nil
		})
	})
	return grouped, alone
}

// postAt returns the URI of an author's post.
func postAt(author int, at time.Time) []byte {
	tid := uint64(at.UnixMilli()) * 1000 << dict.ClockBits
	return fmt.Appendf(nil, "at://did:plc:%s/app.bsky.feed.post/%s", base32Of(uint64(author)), syntax.AppendTID(nil, tid))
}

// TestPostsHaveGroups: posts of the last years are in groups, until a group is full, and so are those of a moment ago. Others have rows.
// A Drawer finds all of them again.
func TestPostsHaveGroups(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		at      time.Time
		settled dict.Settings
		most    int
		grouped int // of 300 posts
	}{
		"now":                   {now, dict.DefaultSettings, 1000, 300},
		"of the first posts":    {time.Date(2022, 11, 17, 0, 0, 0, 0, time.UTC), dict.DefaultSettings, 1000, 300},
		"a day ahead":           {now.AddDate(0, 0, 1), dict.DefaultSettings, 1000, 0},
		"before the first":      {time.Date(2021, 12, 31, 23, 59, 0, 0, time.UTC), dict.DefaultSettings, 1000, 0},
		"in 2200":               {time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), dict.DefaultSettings, 1000, 0},
		"too many":              {now, dict.DefaultSettings, 99, 99},
		"several writers":       {now, dict.SharedSettings, 1000, 0},
		"too many for one":      {now, dict.DefaultSettings, 9, 9},
		"exactly as many":       {now, dict.DefaultSettings, 300, 300},
		"exactly as many in 30": {now, dict.DefaultSettings, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
			at := c.at.Truncate(time.Hour) // and so in one group
			ids := map[int]dict.ID{}
			for life := range 2 { // the second finds them
				in := openAs(t, store, Options{Settings: c.settled})
				if d, ok := in.(*Drawer); ok {
					d.posts.most = c.most
				}
				for n := 0; n < 300; n += 10 {
					var b Batch
					for i := range 10 {
						b.Add(dict.URI, postAt(n+i, at.Add(time.Duration(i)*time.Millisecond)))
					}
					if err := in.Prepare(t.Context(), &b, 20); err != nil {
						t.Fatal(err)
					}
					if err := store.Update(t.Context(), func(tx kv.Txn) error { _, err := in.Resolve(tx, &b); return err }); err != nil {
						t.Fatal(err)
					}
					in.Committed(&b)
					for i := range 10 {
						id := b.ID(2*i + 1) // after its author
						if life == 1 && (ids[n+i] != id || id == dict.None) {
							t.Errorf("post %d has id %d, and had %d", n+i, id, ids[n+i])
						}
						ids[n+i] = id
					}
				}
				if err := in.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if grouped, alone := postsIn(t, store); grouped != c.grouped || alone != 300-c.grouped {
				t.Errorf("%d posts are in groups, and %d are not; want %d and %d", grouped, alone, c.grouped, 300-c.grouped)
			}
			all := 0
			viewOf(t, store, func(r kv.Reader) error { return EachID(r, dict.URI, func(dict.ID) error { all++; return nil }) })
			if all != 300 {
				t.Errorf("EachID calls for %d posts", all)
			}
		})
	}
}

// roomIn reports whether a post fits into a group.
func roomIn(t *testing.T, c *postCounts, g dict.PostGroup) bool {
	t.Helper()
	fit, err := c.room(nil, g, 1)
	if err != nil {
		t.Fatal(err)
	}
	return fit == 1
}

// TestPostCountsAreBounded: posts of made-up times take no memory, and those of all times since the first posts take few megabytes.
func TestPostCountsAreBounded(t *testing.T) {
	c := newPostCounts()
	for g := uint64(0); g < 1<<29; g += countsInPage {
		roomIn(t, c, dict.PostGroup(g))
	}
	years := time.Since(time.UnixMilli(firstPosts)).Hours()/24/365 + 1
	if size := len(c.pages) * 2 * countsInPage; float64(size) > years*4e6 || len(c.pages) < 1000 {
		t.Errorf("%d pages take %d bytes", len(c.pages), size)
	}
}

// TestClockOfPostCounts: a Drawer that runs for long has groups for the posts of the present.
func TestClockOfPostCounts(t *testing.T) {
	c := newPostCounts()
	now := dict.PostGroupAt(time.Now().UnixMilli())
	if c.until = now - 1_000_000; !roomIn(t, c, now) || roomIn(t, c, now+2*groupsAhead) || !roomIn(t, c, now+groupsAhead/2) {
		t.Errorf("the last group is %d, and now is %d", c.until, now)
	}
}

// fillGroup puts posts of one moment into a store, from the n-th author on.
func fillGroup(t *testing.T, in Interner, store kv.Store, from, to int) {
	t.Helper()
	at := time.Now().Truncate(time.Hour)
	for n := from; n < to; n += 100 {
		var b Batch
		for i := range min(100, to-n) {
			b.Add(dict.URI, postAt(n+i, at))
		}
		if err := in.Prepare(t.Context(), &b, 200); err != nil {
			t.Fatal(err)
		}
		if err := store.Update(t.Context(), func(tx kv.Txn) error { _, err := in.Resolve(tx, &b); return err }); err != nil {
			t.Fatal(err)
		}
		in.Committed(&b)
	}
}

// TestGroupsStaySmall: a group that someone fills stays small, also if the writer, which forgets its counts, starts again and again.
func TestGroupsStaySmall(t *testing.T) {
	for name, alone := range map[string]bool{"looks up all": false, "has filters": true} {
		store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
		file := t.TempDir() + "/filters"
		const lives, posts = 8, 3000
		for life := range lives {
			in := openAs(t, store, Options{Alone: alone, FilterFile: file, FilterBytes: 4 << 20})
			fillGroup(t, in, store, life*posts, (life+1)*posts)
			if err := in.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		size := 0
		viewOf(t, store, func(r kv.Reader) error {
			return kv.ScanPrefix(r, []byte{dict.KeyPosts}, func(_, v []byte) error { size = max(size, len(v)); return nil })
		})
		grouped, rows := postsIn(t, store)
		if size < fullBytes || size > 2*fullBytes || grouped+rows != lives*posts {
			t.Errorf("%s: a group has %d bytes; %d posts are in groups, and %d are not", name, size, grouped, rows)
		}
	}
}

// groupReader notes how many post groups are looked up together. If it has a value, that is the value of all groups.
type groupReader struct {
	kv.Reader
	rounds []int
	value  []byte
}

func (r *groupReader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if len(keys) == 0 || keys[0][0] != dict.KeyPosts {
		return r.Reader.MultiGet(keys, each)
	}
	r.rounds = append(r.rounds, len(keys))
	if r.value == nil {
		return r.Reader.MultiGet(keys, each)
	}
	for i := range keys {
		if err := each(i, r.value, true); err != nil {
			return err
		}
	}
	return nil
}

// TestManyGroups: posts of very many groups are all found, and the reader does not have to keep all groups at once.
func TestManyGroups(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
	in := openAs(t, store, Options{})
	var b, known, others Batch
	from := time.Now().Truncate(time.Hour).Add(-24 * time.Hour)
	const posts = 5000
	for n := range posts {
		b.Add(dict.URI, postAt(n%90, from.Add(time.Duration(n)*9*time.Second)))
	}
	if err := in.Prepare(t.Context(), &b, 2*posts); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), func(tx kv.Txn) error { _, err := in.Resolve(tx, &b); return err }); err != nil {
		t.Fatal(err)
	}
	for n := range posts {
		known.Add(dict.URI, postAt(n%90, from.Add(time.Duration(n)*9*time.Second)))
		others.Add(dict.URI, postAt(n%90, from.Add(time.Duration(n)*9*time.Second+time.Millisecond)))
	}
	viewOf(t, store, func(r kv.Reader) error {
		counting := &groupReader{Reader: r}
		if err := Lookup(counting, dict.DefaultSettings, &known); err != nil {
			return err
		}
		for i := range known.Len() {
			if known.ID(i) == dict.None || known.ID(i) != b.ID(i) {
				t.Fatalf("string %d has id %d, and was given %d", i, known.ID(i), b.ID(i))
			}
		}
		if want := []int{firstGroups, 2 * firstGroups}; len(counting.rounds) != 3 || !slices.Equal(counting.rounds[:2], want) {
			t.Errorf("%d groups are looked up together, want %d and the others", counting.rounds, want)
		}
		if err := Lookup(r, dict.DefaultSettings, &others); err != nil {
			return err
		}
		found := 0
		for i := range others.Len() {
			if others.ID(i) != dict.None {
				found++
			}
		}
		if found != 90 {
			t.Errorf("%d strings are found of posts that the store does not have; want their 90 authors", found)
		}
		return nil
	})
	if grouped, rows := postsIn(t, store); grouped != posts || rows > 0 {
		t.Errorf("%d posts are in groups, and %d are not", grouped, rows)
	}
}

// TestLargeGroups: of large groups, fewer are looked up together, so that a reader does not have to keep many bytes.
func TestLargeGroups(t *testing.T) {
	const uris = 10_000
	from := time.Now().Truncate(time.Hour).Add(-400 * time.Hour)
	for _, posts := range []int{1, 2, 1000} {
		var value []byte
		var w dict.PostWriter
		for n := range posts {
			value = w.Append(value, dict.Post{At: 1, Author: dict.ID(n + 1), ID: 7})
		}
		most := min(bytesAtOnce/len(value), mostGroups)
		var b Batch
		for n := range uris {
			b.Add(dict.URI, postAt(n%90, from.Add(time.Duration(n)*17*time.Second)))
		}
		store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
		in := openAs(t, store, Options{})
		var authors Batch
		for n := range 90 {
			authors.Add(dict.URI, postAt(n, from.Add(-time.Hour)))
		}
		if err := in.Prepare(t.Context(), &authors, 200); err != nil {
			t.Fatal(err)
		}
		if err := store.Update(t.Context(), func(tx kv.Txn) error { _, err := in.Resolve(tx, &authors); return err }); err != nil {
			t.Fatal(err)
		}
		viewOf(t, store, func(r kv.Reader) error {
			counting := &groupReader{Reader: r, value: value}
			if err := Lookup(counting, dict.DefaultSettings, &b); err != nil {
				return err
			}
			largest, all := 0, 0
			for i, n := range counting.rounds {
				all += n
				if largest = max(largest, n); i > 0 && n*len(value) > bytesAtOnce && n > 1 {
					t.Errorf("groups of %d bytes: %d are looked up together", len(value), n)
				}
			}
			if largest < min(most, firstGroups) || largest > max(most, firstGroups) || posts < 3 && largest != most || all != uris {
				t.Errorf("groups of %d bytes: %d are looked up together", len(value), counting.rounds)
			}
			return nil
		})
	}
}
