package intern

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// groupedPost is a URI of a batch that belongs in a post group.
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

// postOf returns the post that an item is, without its id. ok is false for other items, which have rows.
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
	slices.SortFunc(b.posts, compareGrouped)
	most := firstGroups
	for posts := b.posts; len(posts) > 0; { // the latest first: their groups are the largest
		from, groups := len(posts), 0
		for ; from > 0; from-- {
			if from == len(posts) || posts[from-1].group != posts[from].group {
				if groups == most {
					break
				}
				groups++
			}
		}
		size, err := b.lookUpPosts(r, posts[from:], m)
		if err != nil {
			return err
		}
		posts = posts[:from]
		most = max(min(bytesAtOnce*groups/max(size, 1), 2*most, mostGroups), 1)
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

// A reader may keep the values of groups that are looked up together until all are read. A group has some 8 KB in a large network,
// a hundred bytes in a small one. The first look-up takes firstGroups; from its size follows how many the next one takes, at most
// double. In larger look-ups, the goroutines of a reader wait less for each other.
const (
	firstGroups = 512
	mostGroups  = 2048
	bytesAtOnce = 4 << 20
)

// lookUpPosts finds posts, which are sorted, in their groups, and adds those that it does not find to b.rest. It returns the size of
// the groups in bytes.
func (b *Batch) lookUpPosts(r kv.Reader, posts []groupedPost, m *Metrics) (size int, err error) {
	var keys [][]byte
	var starts []int // of the posts of each group
	buf := make([]byte, 0, 5*len(posts))
	for i := range posts {
		if i > 0 && posts[i].group == posts[i-1].group {
			continue
		}
		at := len(buf)
		buf = dict.AppendPostGroupKey(buf, posts[i].group)
		keys, starts = append(keys, buf[at:len(buf):len(buf)]), append(starts, i)
	}
	starts = append(starts, len(posts))
	err = r.MultiGet(keys, func(k int, value []byte, _ bool) error {
		size += len(value)
		wanted := posts[starts[k]:starts[k+1]]
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
		if err != nil {
			return fmt.Errorf("intern: post group %x: %w", keys[k], err)
		}
		return nil
	})
	return size, err
}

// postCounts counts the posts that this writer has put into each group, so that groups stay small. Those of a
// transaction that is tried again count again. Only the goroutine of the writer uses it.
type postCounts struct {
	most  int                                      // for each group
	pages map[dict.PostGroup]*[countsInPage]uint16 // by the number of their first group
	until dict.PostGroup                           // later times are in the future
}

const (
	// countsInPage makes a page of 18.6 hours.
	countsInPage = 1 << 12
	// firstPosts is the beginning of 2022, before the first posts. Earlier times, like those far in the future, are only
	// in made-up URIs: posts of these have no groups, so that the pages take at most 4 MB for each year since.
	firstPosts = 1_640_995_200_000
	// groupsAhead is half a day.
	groupsAhead = 12 * 60 * 60 * 1000 >> 14
	// sizeAt is how many posts a writer puts into a group before it reads how large the group is. So a group that is full grows by
	// fewer posts than that when a writer starts, and a writer of an archive reads no groups of few posts.
	sizeAt = 256
	// fullBytes is the size of a full group.
	fullBytes = 20_000
)

func newPostCounts() *postCounts {
	return &postCounts{most: dict.MaxPosts, pages: map[dict.PostGroup]*[countsInPage]uint16{}}
}

// of returns the count of a group, or nil if there are no groups of its time.
func (c *postCounts) of(g dict.PostGroup) *uint16 {
	if g > c.until {
		c.until = dict.PostGroupAt(time.Now().UnixMilli()) + groupsAhead
	}
	if g < dict.PostGroupAt(firstPosts) || g > c.until {
		return nil
	}
	first := g &^ (countsInPage - 1)
	page := c.pages[first]
	if page == nil {
		page = new([countsInPage]uint16)
		c.pages[first] = page
	}
	return &page[g-first]
}

// room returns how many of n posts fit into a group, and counts them.
func (c *postCounts) room(r kv.Reader, g dict.PostGroup, n int) (fit int, err error) {
	count := c.of(g)
	if count == nil {
		return 0, nil
	}
	if *count < sizeAt && int(*count)+n >= sizeAt {
		value, _, err := r.Get(dict.AppendPostGroupKey(nil, g))
		if err != nil {
			return 0, fmt.Errorf("intern: reading a post group: %w", err)
		}
		if len(value) >= fullBytes {
			*count = uint16(c.most)
		}
	}
	fit = max(min(n, c.most-int(*count)), 0)
	*count += uint16(fit)
	return fit, nil
}
