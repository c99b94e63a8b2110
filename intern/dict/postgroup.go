package dict

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// In a store with one partition, most URIs of posts have no row of KeyID. A post group has the ids of the URIs whose
// TIDs are in the same 16.4 seconds: a key for each URI would take more space than its id. Only URIs of the shortest
// form (pack.go) are in groups. A row is, ascending by time, clock id and author, for each post,
//
//	uvarint: the lower 19 bits of the 6 bytes of its form, as the difference to the previous post's; for the first, to 0
//	zigzag uvarint: its author's id, and its own id, each as the difference to the previous post's; for the first, to 0
//
// An operand and a stored row have the same form. The row's key has the upper 29 bits (AppendPostGroupKey).
//
// Anyone can make URIs of any time, so a writer keeps groups small: a post that finds its group full gets a row of KeyID,
// like other URIs. So a reader looks in the group first, and then for that row.

// A PostGroup is the number of a post group: a time in units of 16.384 seconds since 1970.
type PostGroup uint32

const (
	postGroupBits = 14 + 5 // milliseconds and clock ids
	maxPostGroup  = 1<<(48-postGroupBits) - 1
)

// MaxPosts is how many posts a writer puts into a group after its start. They take some 20 KB, and 47 KB if all ids are long.
const MaxPosts = 2048

// A Post is a post's URI in a post group, and its id.
type Post struct {
	At     uint32 // the lower bits of its form: milliseconds and clock id
	Author ID
	ID     ID
}

// PostGroups reports whether the store has post groups.
func (s Settings) PostGroups() bool { return s.Partitions == 1 }

// PostGroupOf returns the group that has a post, and where in the group. ok is false for URIs of other forms, which have rows.
func PostGroupOf(tid uint64, collection byte) (g PostGroup, at uint32, ok bool) {
	n, ok := shortPost(tid, collection)
	return PostGroup(n >> postGroupBits), uint32(n & (1<<postGroupBits - 1)), ok
}

// SplitPost returns the group of the URI with a form, and the post without its id. ok is false for other forms, which have
// rows.
func SplitPost(form []byte) (g PostGroup, p Post, ok bool) {
	if len(form) != packedPost && len(form) != packedPostLong {
		return 0, p, false
	}
	author, n := ReadID(form[6:])
	if n != len(form)-6 {
		return 0, p, false
	}
	at := binary.BigEndian.Uint64(form) >> 16
	return PostGroup(at >> postGroupBits), Post{At: uint32(at & (1<<postGroupBits - 1)), Author: author}, true
}

// TID returns the TID of a post in the group.
func (g PostGroup) TID(p Post) uint64 { return longTID(uint64(g)<<postGroupBits | uint64(p.At)) }

// AppendForm appends the form of a post's URI in the group.
func (g PostGroup) AppendForm(dst []byte, p Post) []byte {
	dst = binary.BigEndian.AppendUint64(dst, (uint64(g)<<postGroupBits|uint64(p.At))<<16)
	return AppendID(dst[:len(dst)-2], p.Author)
}

// PostGroupAt returns the group of a time in milliseconds since 1970.
func PostGroupAt(millis int64) PostGroup { return PostGroup(millis << 5 >> postGroupBits) }

// AppendPostGroupKey appends the key of a group.
func AppendPostGroupKey(dst []byte, g PostGroup) []byte {
	return binary.BigEndian.AppendUint32(append(dst, KeyPosts), uint32(g))
}

// ErrPosts is returned for a malformed post group.
var ErrPosts error = Malformed("dict: malformed post group")

// ParsePostGroupKey returns the number of the group with a key.
func ParsePostGroupKey(key []byte) (PostGroup, error) {
	if len(key) != 5 || key[0] != KeyPosts || binary.BigEndian.Uint32(key[1:]) > maxPostGroup {
		return 0, ErrPosts
	}
	return PostGroup(binary.BigEndian.Uint32(key[1:])), nil
}

// Compare orders the posts of a group, by time, clock id and author.
func (p Post) Compare(q Post) int {
	if p.At != q.At {
		return cmp.Compare(p.At, q.At)
	}
	return cmp.Compare(p.Author, q.Author)
}

// PostWriter appends posts to a row. They must ascend.
type PostWriter struct{ last Post }

// Append appends a post.
func (w *PostWriter) Append(dst []byte, p Post) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.At-w.last.At))
	dst = binary.AppendUvarint(dst, Zigzag(uint64(p.Author)-uint64(w.last.Author)))
	dst = binary.AppendUvarint(dst, Zigzag(uint64(p.ID)-uint64(w.last.ID)))
	w.last = p
	return dst
}

// EachPost calls each for the posts of a group, ascending, until each returns false.
func EachPost(v []byte, each func(Post) bool) error {
	var p Post
	for first := true; len(v) > 0; first = false {
		at, n := binary.Uvarint(v)
		if n <= 0 || at > 1<<postGroupBits-1-uint64(p.At) {
			return ErrPosts
		}
		author, m := binary.Uvarint(v[n:])
		if m <= 0 {
			return ErrPosts
		}
		id, l := binary.Uvarint(v[n+m:])
		if l <= 0 {
			return ErrPosts
		}
		next := Post{p.At + uint32(at), p.Author + ID(Unzigzag(author)), p.ID + ID(Unzigzag(id))}
		if !first && p.Compare(next) >= 0 || next.ID == None || next.Author == None {
			return ErrPosts
		}
		p, v = next, v[n+m+l:]
		if !each(p) {
			return nil
		}
	}
	return nil
}

// A PostFolder folds post groups. It holds the scratch space of a fold; only one goroutine at a time may use it.
type PostFolder struct{ posts []foldedPost }

type foldedPost struct {
	Post

	age int // of the value that has it
}

// Fold appends the group that the groups in values, oldest first, fold to. The store's Merger calls it for keys that
// begin with KeyPosts.
func (f *PostFolder) Fold(dst []byte, values [][]byte) ([]byte, error) {
	f.posts = f.posts[:0]
	for i, v := range values {
		err := EachPost(v, func(p Post) bool { f.posts = append(f.posts, foldedPost{p, -i}); return true })
		if err != nil {
			return nil, err
		}
	}
	if len(values) > 1 {
		slices.SortFunc(f.posts, func(x, y foldedPost) int {
			if c := x.Compare(y.Post); c != 0 {
				return c
			}
			return cmp.Compare(x.age, y.age)
		})
	}
	var w PostWriter
	for i, p := range f.posts {
		if i > 0 && w.last.Compare(p.Post) == 0 {
			continue // the newest came first
		}
		dst = w.Append(dst, p.Post)
	}
	return dst, nil
}
