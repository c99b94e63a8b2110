package intern

import (
	"cmp"
	"slices"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// groupedPost is a URI of a batch that belongs into a post group.
type groupedPost struct {
	dict.Post

	group dict.PostGroup
	key   int // its index in the batch's keys
}

func compareGrouped(x, y groupedPost) int {
	if x.group != y.group {
		return cmp.Compare(x.group, y.group)
	}
	return x.Compare(y.Post)
}

// postOf returns the post that an item is, without its id. ok is false for items that are in no group.
func (b *Batch) postOf(it *batchItem) (p groupedPost, ok bool) {
	if it.author == noAuthor {
		return p, false
	}
	p.group, p.At, ok = dict.PostGroupOf(it.tid, it.collection)
	p.Author = b.items[it.author].id
	return p, ok
}

// lookUp finds the ids of the items of the first keys that missing has collected.
func (b *Batch) lookUp(r kv.Reader, s dict.Settings, asked int, m *Metrics) error {
	b.rest, b.posts = b.rest[:0], b.posts[:0]
	for i := range asked {
		if p, ok := b.postOf(&b.items[b.miss[i]]); ok && s.PostGroups() {
			p.key = i
			b.posts = append(b.posts, p)
		} else {
			b.rest = append(b.rest, i)
		}
	}
	if err := b.lookUpPosts(r, m); err != nil {
		return err
	}
	keys := b.keys[:asked]
	if len(b.posts) > 0 {
		b.kept = b.kept[:0]
		for _, i := range b.rest {
			b.kept = append(b.kept, b.keys[i])
		}
		keys = b.kept
	}
	return r.MultiGet(keys, func(i int, value []byte, ok bool) error {
		if !ok {
			return nil
		}
		return b.foundRow(b.rest[i], value, m)
	})
}

// lookUpPosts finds b.posts in their groups, and adds the keys of the others to b.rest.
func (b *Batch) lookUpPosts(r kv.Reader, m *Metrics) error {
	if len(b.posts) == 0 {
		return nil
	}
	slices.SortFunc(b.posts, compareGrouped)
	keys := make([][]byte, 0, len(b.posts))
	starts := make([]int, 0, len(b.posts)+1) // of the posts of each group
	buf := make([]byte, 0, 5*len(b.posts))
	for i := range b.posts {
		if i > 0 && b.posts[i].group == b.posts[i-1].group {
			continue
		}
		at := len(buf)
		buf = dict.AppendPostGroupKey(buf, b.posts[i].group)
		keys, starts = append(keys, buf[at:len(buf):len(buf)]), append(starts, i)
	}
	starts = append(starts, len(b.posts))
	return r.MultiGet(keys, func(k int, value []byte, _ bool) error {
		wanted := b.posts[starts[k]:starts[k+1]]
		err := dict.EachPost(value, func(p dict.Post) bool {
			for len(wanted) > 0 && wanted[0].Compare(p) < 0 {
				b.rest, wanted = append(b.rest, wanted[0].key), wanted[1:]
			}
			if len(wanted) > 0 && wanted[0].Compare(p) == 0 {
				b.found(wanted[0].key, p.ID, m)
				wanted = wanted[1:]
			}
			return len(wanted) > 0
		})
		for _, p := range wanted {
			b.rest = append(b.rest, p.key)
		}
		return err
	})
}

// postCounts counts the posts that this process has put into each group, so that groups stay small. Those of a
// transaction that is tried again count again.
type postCounts struct {
	most  int                                      // for each group
	pages map[dict.PostGroup]*[countsInPage]uint16 // by the number of their first group
	until dict.PostGroup                           // later times are in the future
}

const (
	// countsInPage makes a page of 18 hours.
	countsInPage = 1 << 12
	// firstPosts is the beginning of 2022, before the first posts. Earlier times, like those far in the future, are only
	// in made-up URIs: posts of these have no groups, so that the pages take at most 4 MB for each year since.
	firstPosts = 1_640_995_200_000
	// groupsAhead is half a day.
	groupsAhead = 1 << 11
)

func newPostCounts() *postCounts {
	return &postCounts{most: dict.MaxPosts, pages: map[dict.PostGroup]*[countsInPage]uint16{}}
}

// room reports whether n more posts fit into a group, and counts them.
func (c *postCounts) room(g dict.PostGroup, n int) bool {
	if g > c.until {
		c.until = dict.PostGroupAt(time.Now().UnixMilli()) + groupsAhead
	}
	if g < dict.PostGroupAt(firstPosts) || g > c.until {
		return false
	}
	first := g &^ (countsInPage - 1)
	page := c.pages[first]
	if page == nil {
		page = new([countsInPage]uint16)
		c.pages[first] = page
	}
	count := &page[g-first]
	if int(*count)+n > c.most {
		return false
	}
	*count += uint16(n)
	return true
}
