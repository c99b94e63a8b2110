package feed

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/rank"
	"skein.blue/query/xrpc"
)

// place is the start of a page. A ranking changes between two pages, so its place has the posts that were shown: a page shows the
// first of the others. The posts of a set are sorted by their keys, which do not change, so its place is the post before which all
// are decided: each was shown, or is not to be shown.
type place struct {
	micros uint64      // the time of the first page
	late   uint64      // rank.Ranking.Late
	turn   int         // how many posts of a round of the sources were shown
	after  []candidate // of each source that is a set: its place
	shown  []uint64    // if feed.remembers: the ids of the posts on the pages before, ascending
}

// A candidate is a post of a source.
type candidate struct {
	algebra.MemberRecord // of a set: with the time of the post itself

	uri string
}

const (
	maxPage = 100  // posts on a page
	maxFeed = 1000 // posts in a feed that remembers them
)

// remembers reports whether places must have the posts that were shown.
func (f *feed) remembers() bool { return len(f.sources) > 1 || f.sources[0].ranked || f.each > 0 }

// page returns a page of a feed, and the start of the next, nil after the last page.
func (f feed) page(ctx context.Context, q xrpc.Query, at place, limit int, first bool, seen viewed) (posts []string, next *place, err error) {
	exprs := make([]*language.Expr, len(f.sources))
	for i, s := range f.sources {
		if exprs[i], err = q.Words.ParseAlone(s.text, language.MaxExpr, time.UnixMicro(int64(at.micros))); err == nil {
			f.nameViewer(exprs[i].Strings)
			err = q.Resolve(exprs[i].Strings, func(int) string { return "feed " + f.name + ": " })
		}
		if err != nil {
			return nil, nil, err
		}
	}
	err = q.View(ctx, func(sn *ask.View) error {
		if first {
			at.late = q.Work.Late()
		}
		p := page{feed: f, sn: sn, gone: map[dict.ID]bool{}, seen: seen, shown: slices.Clone(at.shown), authors: map[string]int{}}
		if first && f.pin != "" {
			p.posts = append(p.posts, f.pin)
			p.authors[dict.AuthorityOf(f.pin)]++
		}
		for i, e := range exprs {
			v, err := algebra.NewEvaluation(ctx, sn, e, q.Work)
			if err != nil {
				return err
			}
			from := queue{after: at.after[i]}
			if f.sources[i].ranked {
				from.posts, err = f.ranked(v, q.Work, at.late, len(at.shown)+limit, seen)
			} else {
				from.posts, err = newestOf(v, from.after.MemberRecord)
			}
			if err != nil {
				return err
			}
			p.queues = append(p.queues, from)
		}
		next = p.fill(at, limit)
		posts = p.posts
		return p.err
	})
	return posts, next, err
}

const (
	postsRead = 20_000           // the largest set that newest sorts
	unnamed   = dict.ID(1 << 63) // the first unnamedID
)

// newestOf returns the posts of a source that is a set, newest first, after its place.
func newestOf(v *algebra.Evaluation, after algebra.MemberRecord) (found []candidate, err error) {
	set, _, err := v.Result()
	if err != nil {
		return nil, err
	}
	if set.Len() > postsRead {
		return nil, xrpc.Invalid("the feed's set is too large: it has %d members, and only sets up to %d can be sorted; limit it with since=", set.Len(), postsRead)
	}
	ids, order := set.List(nil), algebra.OrderAt(v.Expr.Now, false)
	uris, err := v.Names(dict.URI, ids)
	for i, uri := range uris {
		p := algebra.MemberRecord{ID: dict.ID(ids[i]), Path: ask.Path{TID: ask.TIDOf(dict.URI, uri)}}
		if p.ID >= dict.FirstReserved {
			p.ID = unnamedID(uri)
		}
		if rank.IsPost(uri) && (after.ID == dict.None || order.Compare(p, after) > 0) {
			found = append(found, candidate{p, uri})
		}
	}
	slices.SortFunc(found, func(x, y candidate) int { return order.Compare(x.MemberRecord, y.MemberRecord) })
	return found, err
}

// ranked returns the posts of a source that is a ranking. Without an option that leaves posts out, the page needs no more than
// those on the pages before and its own, and one more.
func (f *feed) ranked(v *algebra.Evaluation, w *xrpc.Work, late uint64, needs int, seen viewed) (all []candidate, err error) {
	for n := range v.Expr.Root.All() { // without later records
		if until := v.Expr.Now.UnixMicro(); n.Op == language.OpRank && !n.Window.All() && n.Window.To > until {
			n.Window.To = until
		}
	}
	r := rank.Ranking{RankSpec: v.Expr.Root.Rank, Expr: v.Expr, Limit: maxFeed + len(seen.marks), Posts: true, Late: &late}
	if f.each == 0 && !f.hide && f.dead|f.replies == 0 {
		r.Limit = needs + 2 // one of them is pinned
	}
	r.Begin(v, w)
	ranked, err := rank.Rank(v, w, r)
	if err == nil {
		_, err = ranked.Page(r, func(e *rank.Result, member string) bool {
			all = append(all, candidate{algebra.MemberRecord{ID: dict.ID(e.ID)}, member})
			return true
		})
	}
	return all, err
}

// page is a page that is being made.
type page struct {
	feed

	sn      *ask.View
	err     error // the first of a read
	posts   []string
	seen    viewed
	shown   []uint64       // with those on the pages before
	authors map[string]int // of the posts on this page
	queues  []queue
	gone    map[dict.ID]bool // posts that the feed leaves out: judge
}

// queue has the posts of a source that follow its place, in order.
type queue struct {
	posts []candidate
	known int       // of how many, from the first, page.gone knows whether the feed leaves them out
	after candidate // the place
	waits bool      // a post before the first of posts is for the next page
}

// fill takes posts from the sources in turn, and returns the start of the next page, nil if there is none.
func (p *page) fill(at place, limit int) *place {
	next := place{micros: at.micros, late: at.late, turn: at.turn}
	if p.remembers() {
		limit = min(limit, maxFeed-len(p.shown))
	}
	for turn, dry := at.turn, 0; dry < len(p.queues) && len(p.posts) < limit; {
		i, end := p.turnOf(turn)
		c, ok := p.head(i)
		if !ok { // the others have its turns
			turn = end
			dry++
			continue
		}
		p.posts = append(p.posts, c.uri)
		p.authors[dict.AuthorityOf(c.uri)]++
		if p.remembers() {
			n, _ := slices.BinarySearch(p.shown, uint64(c.ID))
			p.shown = slices.Insert(p.shown, n, uint64(c.ID))
		}
		p.queues[i].pass()
		turn, dry = turn+1, 0
		next.turn = turn
	}
	more := false
	for i := range p.queues {
		_, ok := p.head(i)
		more = more || ok || p.queues[i].waits
		next.after = append(next.after, p.queues[i].after)
	}
	if !more || p.remembers() && len(p.shown) >= maxFeed {
		return nil
	}
	next.shown = p.shown
	return &next
}

// turnOf returns the source whose turn it is, and where its turn ends.
func (f *feed) turnOf(turn int) (i, end int) {
	round := 0
	for i := range f.sources {
		round += f.sources[i].weight
	}
	begin := turn - turn%round
	for end = begin; end <= turn; i++ {
		end += f.sources[i].weight
	}
	return i - 1, end
}

// head returns the next post of a source for this page, if there is one.
func (p *page) head(i int) (c candidate, ok bool) {
	for q := &p.queues[i]; len(q.posts) > 0 && p.err == nil; q.pass() {
		if q.known == 0 {
			q.known = min(len(q.posts), maxPage)
			p.err = p.judge(q.posts[:q.known])
		}
		c = q.posts[0]
		_, again := slices.BinarySearch(p.shown, uint64(c.ID))
		if _, before := slices.BinarySearch(p.shown, uint64(unnamedID(c.uri))); before || again || c.uri == p.pin || p.seen.has(c.uri) || p.gone[c.ID] {
			continue
		}
		if p.each == 0 || p.authors[dict.AuthorityOf(c.uri)] < p.each {
			return c, true
		}
		q.waits = true
	}
	return c, false
}

// unnamedID returns what stands for the id of a post of members(…) that no record names: the same in all sources. A post that is
// named between two pages was shown under it.
func unnamedID(uri string) dict.ID { return unnamed | dict.ID(xxh3.HashString(uri)) }

// pass removes the first post.
func (q *queue) pass() {
	if !q.waits {
		q.after = q.posts[0]
	}
	q.posts = q.posts[1:]
	q.known--
}

// judge notes in gone which of some posts the feed leaves out. A post is dead if the index has all of its author's posts, and not
// this one, or if its author is not active.
func (p *page) judge(posts []candidate) error {
	var ids []dict.ID
	for i := range posts {
		if posts[i].ID < unnamed {
			ids = append(ids, posts[i].ID)
		}
	}
	if p.replies != 0 {
		err := p.sn.Live(p.replies, ids, func(i int, _, _ dict.ID) error { p.gone[ids[i]] = true; return nil })
		if err != nil {
			return err
		}
	}
	if p.dead == 0 {
		return nil
	}
	lives, authors, tids := make([]bool, len(ids)), make([]dict.ID, len(ids)), make([]uint64, len(ids))
	x := evidence.IndexOf(p.sn)
	err := p.sn.Live(p.dead, ids, func(i int, author, _ dict.ID) error { lives[i] = !p.sn.IsHidden(author); return nil })
	if err == nil {
		err = p.sn.Authors(ids, func(i int, author dict.ID, tid uint64) error {
			if authors[i], tids[i] = author, tid; !lives[i] {
				p.sn.BeginAccount(author)
			}
			return nil
		})
	}
	for i := 0; i < len(ids) && err == nil; i++ {
		if lives[i] || authors[i] == dict.None {
			continue
		}
		var w language.Window
		if tids[i] < ask.EndOfTime {
			w.From = int64(ask.MicrosOf(tids[i]))
			w.To = w.From + 1
		}
		a := evidence.Account{Unwritten: x.Unwritten.Has("", authors[i])}
		a.State, a.Known, _, err = p.sn.AccountAndQueue(authors[i])
		p.gone[ids[i]] = p.gone[ids[i]] || p.sn.IsHidden(authors[i]) || x.Own(&a, p.dead, w) == nil
	}
	return err
}

// seal seals the start of the next page of a feed.
func (f feed) seal(c *xrpc.Cursors, p place) string {
	at, last, shown := []uint64{p.micros, p.late, uint64(p.turn)}, uint64(0), []byte(nil)
	for _, a := range p.after {
		at = append(at, a.Path.TID, uint64(a.ID))
	}
	for _, id := range p.shown {
		shown, last = binary.AppendUvarint(shown, id-last), id // which take few bytes
	}
	return c.Seal(f.question(), at, shown...)
}

func (f feed) open(c *xrpc.Cursors, cursor string) (p place, err error) {
	at := make([]uint64, 3+2*len(f.sources))
	shown, err := c.Open(f.question(), cursor, at)
	p.micros, p.late, p.turn = at[0], at[1], int(at[2])
	for pair := range slices.Chunk(at[3:], 2) {
		p.after = append(p.after, candidate{MemberRecord: algebra.MemberRecord{Path: ask.Path{TID: pair[0]}, ID: dict.ID(pair[1])}})
	}
	for last := uint64(0); len(shown) > 0; {
		more, n := binary.Uvarint(shown)
		last, shown = last+more, shown[max(n, 1):]
		p.shown = append(p.shown, last)
	}
	return p, err
}
