package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
)

// An Around is a part of the network, and what the stream brings of it.
type Around struct {
	graph.Around

	// Part is what the consumer takes from the stream.
	Part *wire.Part
}

// NewAround returns the part of the network around centers, with the authors of its lists.
func NewAround(a graph.Around) *Around {
	p := &Around{Around: a, Part: wire.NewPart(a.Centers...)}
	for _, list := range a.Lists {
		p.Part.Join([]byte(dict.AuthorityOf(list)))
	}
	return p
}

// ErrAround means that a store cannot hold a part of the network.
var ErrAround = errors.New("the store holds records of the whole network: name another --store for a part of it, or remove --around")

var followKind = kinds.ByName("follow").Kind

// A grower finds the members of a part of the network, in a store that holds their follows and lists, and queues their
// repos. It rests on an order: an account joins the Part first, and its repo is fetched later. Whatever the stream
// brought of the account before it joined is in the fetched repo, because its host had it before; and whatever comes
// later is applied. With the opposite order, commits between would be missed.
type grower struct {
	o      *Options
	queue  *Queue
	change chan struct{} // the members may have changed; one token

	due int64 // repos that were due when the progress was logged last

	mu      sync.Mutex        // guards the fields below
	members roaring64.Bitmap  // accounts whose repos were queued, unless they were in place
	sources *roaring64.Bitmap // accounts whose follows make members; nil: not all are known
}

// Changed implements graph.Watcher: it notices new members.
func (g *grower) Changed(edges []graph.Change, lists []graph.ListChange, hidden []dict.ID) {
	g.mu.Lock()
	sources := g.sources
	g.mu.Unlock()
	isSource := func(id dict.ID) bool { return sources == nil || sources.Contains(uint64(id)) }
	if slices.ContainsFunc(edges, func(c graph.Change) bool { return c.Kind == followKind && isSource(c.Actor) }) ||
		slices.ContainsFunc(hidden, isSource) || len(lists) > 0 && len(g.o.Around.Lists) > 0 {
		g.poke()
	}
}

// find returns the ids of the members that the store has, and those of the accounts whose follows make members; nil
// while it does not have all centers.
func (g *grower) find(s *graph.View) (members, sources *roaring64.Bitmap, err error) {
	a := g.o.Around
	var names intern.Batch
	var at []int
	for _, did := range a.Centers {
		at = append(at, names.Add(dict.DID, []byte(did)))
	}
	for _, list := range a.Lists {
		at = append(at, names.Add(dict.URI, []byte(list)), names.Add(dict.DID, []byte(dict.AuthorityOf(list))))
	}
	if err := s.Lookup(&names); err != nil {
		return nil, nil, err
	}
	members, sources = roaring64.New(), roaring64.New()
	var follows []uint64
	for i := range a.Centers {
		sources.Add(uint64(names.ID(at[i])))
		if follows, err = s.AppendSubjects(follows, followKind, names.ID(at[i]), graph.Window{}); err != nil {
			return nil, nil, err
		}
	}
	members.Or(sources)
	if a.Hops > 1 {
		for _, id := range slices.Clone(follows) {
			sources.Add(id)
			if follows, err = s.AppendSubjects(follows, followKind, dict.ID(id), graph.Window{}); err != nil {
				return nil, nil, err
			}
		}
	}
	members.AddMany(follows)
	for i := len(a.Centers); i < len(at); i += 2 {
		list, author := names.ID(at[i]), names.ID(at[i+1])
		members.Add(uint64(author))
		if list == dict.None || author == dict.None {
			continue
		}
		err := s.Listed(list, author, graph.Window{}, func(member dict.ID, _ graph.Path) { members.Add(uint64(member)) })
		if err != nil {
			return nil, nil, err
		}
	}
	members.Remove(uint64(dict.None))
	if sources.Contains(uint64(dict.None)) {
		sources = nil
	}
	return members, sources, nil
}

// join makes accounts members of the Part that the store has as such. It returns their ids, and the DIDs of those that the
// grower has not queued before.
func (g *grower) join(ctx context.Context) (members *roaring64.Bitmap, joined []string, err error) {
	_, err = g.o.Store.ViewAcross(ctx, func(s *graph.View) (err error) {
		joined = nil
		var sources *roaring64.Bitmap
		if members, sources, err = g.find(s); err != nil {
			return err
		}
		g.mu.Lock()
		fresh := roaring64.AndNot(members, &g.members)
		g.sources = sources
		g.mu.Unlock()
		return s.Strings(dict.DID, idsOf(fresh), func(_ int, did []byte) error {
			g.o.Around.Part.Join(did)
			joined = append(joined, string(did))
			return nil
		})
	})
	return members, joined, err
}

func idsOf(b *roaring64.Bitmap) (ids []dict.ID) {
	for it := b.Iterator(); it.HasNext(); {
		ids = append(ids, dict.ID(it.Next()))
	}
	return ids
}

// enclose makes the store hold the part. Accounts that no longer belong to it lose what is claimed of them, because their
// commits no longer arrive. It must end before the stream is read.
func (g *grower) enclose(ctx context.Context) error {
	store := g.o.Store
	var accounts int64
	err := store.View(ctx, func(s *graph.View) error {
		counts, err := s.Counts()
		accounts = counts.Accounts
		return err
	})
	if err != nil {
		return err
	}
	if accounts > 0 && store.Backfill().Around.Hops == 0 {
		return ErrAround
	}
	members, _, err := g.join(ctx)
	if err != nil {
		return err
	}
	if err := g.tell(ctx); err != nil {
		return err
	}
	_, err = store.ViewAcross(ctx, func(s *graph.View) error {
		var outside []dict.ID
		if err := s.EachAccount(dict.None, func(id dict.ID, _ *graph.RepoState) bool {
			if !members.Contains(uint64(id)) {
				outside = append(outside, id)
			}
			return true
		}); err != nil {
			return err
		}
		return s.Strings(dict.DID, outside, func(_ int, did []byte) error { g.o.Around.Part.Note(did); return nil })
	})
	if err != nil {
		return err
	}
	left, err := g.queue.addAccounts(ctx, g.o, dict.None, batch.Cause{Leaves: true}, func(id dict.ID, st *graph.RepoState) bool {
		return !members.Contains(uint64(id)) && (!st.Has(graph.FlagPartial) || st.Has(graph.FlagResync))
	}, nil)
	if left > 0 {
		g.o.Logger.Info("accounts left the part of the network", "accounts", left)
	}
	return err
}

// tell stores the part, with the number of its members.
func (g *grower) tell(ctx context.Context) error {
	a := g.o.Around.Around
	a.Members = g.o.Around.Part.Members()
	return g.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		if a.Since = b.Around.Since; !slices.Equal(a.Centers, b.Around.Centers) {
			a.Since = time.Now().UTC()
		}
		b.Around = a
	})
}

// run queues the members, and those that join, until ctx ends.
func (g *grower) run(ctx context.Context) {
	g.o.Store.Watch(g)
	defer g.o.Store.Unwatch(g)
	ticker := time.NewTicker(sayEvery)
	defer ticker.Stop()
	a := g.o.Around
	joined := slices.Clone(a.Centers) // the store may have no ids of these yet
	for _, list := range a.Lists {
		joined = append(joined, dict.AuthorityOf(list))
	}
	for {
		if err := g.grow(ctx, joined); err == nil {
			joined = nil
		} else if ctx.Err() == nil {
			g.o.Logger.Error("looking for new accounts of the part failed; retrying", "error", err)
			g.poke()
		}
		for waits := true; waits; {
			select {
			case <-ticker.C:
				g.say()
			case <-g.change:
				waits = false
			case <-ctx.Done():
				return
			}
		}
		if wait(ctx, min(growEvery, g.o.Settle)) != nil { // many changes may come at once
			return
		}
	}
}

// growEvery is how often to look for new members at most; sayEvery is how often to log the progress.
const (
	growEvery = time.Second
	sayEvery  = 5 * time.Second
)

func (g *grower) poke() {
	select {
	case g.change <- struct{}{}:
	default:
	}
}

// grow queues the repos of members that have joined, and of more, unless they are in place.
func (g *grower) grow(ctx context.Context, more []string) error {
	members, joined, err := g.join(ctx)
	if err != nil {
		return err
	}
	if joined = append(more, joined...); len(joined) == 0 {
		return nil
	}
	if err := g.tell(ctx); err != nil {
		return err
	}
	sweep, queued := g.o.Store.SweepDue(), 0
	for some := range slices.Chunk(joined, pageSize) {
		if err := g.queue.awaitRoom(ctx, ""); err != nil {
			return err
		}
		var b batch.Batch
		err := g.o.Store.View(ctx, func(s *graph.View) error {
			b.Reset()
			for _, did := range some {
				st, _, row, err := s.Account(did)
				switch {
				case err != nil:
					return err
				case st.DeletionSource != 0 && st.Has(graph.FlagHidden): // the stream says that it was deleted
				case sweep != 0:
					b.AddResync([]byte(did), batch.Cause{Reason: graph.KindAdded})
				case row == nil && !st.Whole():
					b.AddResync([]byte(did), batch.Cause{Reason: "around"})
				}
			}
			return nil
		})
		if err == nil {
			err = g.o.apply(ctx, &b)
		}
		if err != nil {
			return err
		}
		queued += b.Events()
	}
	if sweep != 0 {
		if err := g.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Sweep, b.Swept = sweep, sweep }); err != nil {
			return err
		}
	}
	g.mu.Lock()
	g.members.Or(members)
	g.mu.Unlock()
	if queued > 0 {
		g.o.Logger.Info("fetching repos of the part of the network", "accounts", g.o.Around.Part.Members(), "queued", queued, "about", (time.Duration(queued) * perRepo).String())
	}
	return nil
}

// perRepo is a guess of how long a repo takes, until some were fetched: hosts allow some ten a second.
const perRepo = 100 * time.Millisecond

// say logs the progress, if repos wait that are due soon.
func (g *grower) say() {
	var st Status
	g.queue.report(&st)
	due := st.Waiting - st.Later
	if due > 0 {
		left := "unknown"
		if fetched := g.due - due; fetched > 0 {
			left = (time.Duration(due/fetched) * sayEvery).String()
		}
		all := int64(g.o.Around.Part.Members())
		g.o.Logger.Info("fetching repos of the part of the network", "fetched", max(all-st.Waiting, 0), "of", all, "remaining", left)
	} else if g.due > 0 {
		g.o.Logger.Info("the part of the network is in place", "accounts", g.o.Around.Part.Members(), "retried_later", st.Later)
	}
	g.due = due
}

// afterHole queues all members, any of whom may have changed in a hole of the stream. What others did to the centers in
// it stays unknown.
func (g *grower) afterHole(ctx context.Context, noted uint64) error {
	members, _, err := g.join(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	members.Or(&g.members) // some may have been unfollowed since
	g.mu.Unlock()
	_, err = g.queue.addAccounts(ctx, g.o, dict.None, batch.Cause{Reason: "hole"}, func(id dict.ID, _ *graph.RepoState) bool { return members.Contains(uint64(id)) }, nil)
	if err != nil {
		return err
	}
	return g.o.Store.SetCompared(ctx, noted)
}

// within returns an error unless a repo of an account may be put in place: commits of accounts outside a part are not
// applied, so theirs would become out of date.
func (o *Options) within(dids ...string) error {
	around := o.Store.Backfill().Around
	if around.Hops == 0 {
		return nil
	}
	for _, did := range dids {
		if o.Around == nil || !o.Around.Part.Has([]byte(did)) {
			return fmt.Errorf("%s is not in the part of the network that this index holds (--around %s)", did, strings.Join(append(around.Centers, around.Lists...), ","))
		}
	}
	return nil
}
