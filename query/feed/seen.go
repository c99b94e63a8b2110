package feed

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/zeebo/xxh3"

	"skein.blue/intern/dict"
	"skein.blue/internal/identities"
	"skein.blue/query/rank"
	"skein.blue/query/xrpc"
)

// Sketches have the posts that viewers have seen. A post is a mark of 28 bits of a hash, which depends on the viewer, and of 4 bits of
// the day. With maxMarks of them, one unseen post in 65,536 is taken for seen.
//
// A sketch belongs to whom an account cost something (identities.PayerOf): all accounts of a domain, which are free, share one.
// So an attacker who wants to drive out the sketches of others needs thousands of accounts of a directory that rations them. The
// sketches that were used the longest ago go first.
const (
	maxMarks    = 4096
	maxSketches = 64 << 20 // bytes of all sketches
	sketchSize  = 256      // bytes of one without marks
	seenDays    = 7        // and the day on which a post was seen
)

// sketches have what viewers have seen. Any goroutine may use them.
type sketches struct {
	mu    sync.Mutex // guards the fields below
	kept  *simplelru.LRU[string, sketch]
	bytes int
	most  int
}

// sketch has marks, the oldest first.
type sketch struct {
	day   int // of the newest
	marks []uint32
}

// viewed is what a viewer has seen.
type viewed struct {
	seed  uint64
	marks map[uint32]bool
}

func today() int { return int(time.Now().Unix() / 86400) }

func (v *viewed) mark(uri string) uint32 { return uint32(xxh3.HashStringSeed(uri, v.seed)) &^ 15 }

// has reports whether the viewer has seen a post.
func (v *viewed) has(uri string) bool { return v.marks != nil && v.marks[v.mark(uri)] }

// kept returns the marks that are not older than seenDays. Days are counted modulo 16.
func (s *sketch) kept(day int) []uint32 {
	if day-s.day > seenDays {
		return nil
	}
	for i, m := range s.marks {
		if (uint32(day)-m)&15 <= seenDays {
			return s.marks[i:]
		}
	}
	return nil
}

// of returns what a viewer has seen.
func (s *sketches) of(secret []byte, did string) viewed {
	v := viewed{xxh3.HashStringSeed(did, xxh3.Hash(secret)), map[uint32]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.kept.Get(identities.PayerOf(syntax.DID(did))); ok {
		for _, m := range known.kept(today()) {
			v.marks[m&^15] = true
		}
	}
	return v
}

// add notes that a viewer has seen posts.
func (s *sketches) add(v viewed, did string, posts []string) {
	day, payer := today(), identities.PayerOf(syntax.DID(did))
	var marks []uint32
	again := map[uint32]bool{}
	for _, uri := range posts {
		if m := v.mark(uri); !again[m] {
			again[m] = true
			marks = append(marks, m|uint32(day)&15)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.kept.Peek(payer)
	if !ok {
		s.bytes += sketchSize
	}
	all := slices.DeleteFunc(slices.Clone(old.kept(day)), func(m uint32) bool { return again[m&^15] })
	all = append(all, marks...)
	all = slices.Clone(all[max(0, len(all)-maxMarks):])
	s.bytes += 4 * (len(all) - len(old.marks))
	s.kept.Add(payer, sketch{day, all})
	for s.bytes > s.most {
		_, gone, _ := s.kept.RemoveOldest()
		s.bytes -= sketchSize + 4*len(gone.marks)
	}
}

// interactions implements app.bsky.feed.sendInteractions. Posts that were seen are remembered if a feed hides them.
func (f *Feeds) interactions(ctx context.Context, q *xrpc.Query) (any, error) {
	if f == nil {
		return nil, errNone
	}
	var in struct {
		Interactions []struct{ Item, Event string }
	}
	if err := json.Unmarshal([]byte(q.Input), &in); err != nil || in.Interactions == nil {
		return nil, xrpc.Invalid(`the body must be JSON, {"interactions": [{"item": "at://…", "event": "…"}]}`)
	}
	did, err := q.Viewer(ctx)
	if err != nil {
		return nil, err
	}
	var posts []string
	for _, i := range in.Interactions {
		if i.Event == Methods+"defs#interactionSeen" && rank.IsPost(i.Item) && dict.ValidURI(i.Item) {
			posts = append(posts, i.Item)
		}
	}
	if slices.ContainsFunc(*f.feeds.Load(), func(g feed) bool { return g.hide }) {
		f.seen.add(f.seen.of(q.Store.Secret(), did), did, posts)
	}
	return struct{}{}, nil
}
