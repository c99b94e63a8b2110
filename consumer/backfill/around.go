package backfill

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/outward"
)

// An Around is the part of the network that a store holds, and what a consumer takes of it.
type Around struct {
	graph.Around

	Part *wire.Part
}

// NewAround returns a part, whose first members are its centers and the authors of its lists.
func NewAround(a graph.Around) *Around {
	p := &Around{a, wire.NewPart(a.Centers...)}
	for _, list := range a.Lists {
		p.Part.Join([]byte(dict.AuthorityOf(list)))
	}
	return p
}

// Errors of stores that hold a part of the network, or all of it.
var (
	// ErrAround means that a store cannot hold a part.
	ErrAround = errors.New("the store holds records of the whole network; name another --store for a part of it, or remove --around")

	errPart = errors.New("this index holds a part of the network (--around), and fetches its history automatically")
)

// A grower finds the members of a part in what the store has of follows and lists, and queues their repos. An account joins
// the Part first, and its repo is fetched later: what the stream brought of the account before, and nobody took, its host
// had by then, and so the fetched repo has it, too. In the opposite order, the commits between would be missed.
type grower struct {
	client  *client
	o       *Options
	queue   *Queue
	changed atomic.Bool // the members may have changed
	due     int64       // repos that were due when the progress was last logged
	hole    uint64      // the last one after which all repos were queued
	outside []string    // the other accounts that the relay has to be asked about since

	growing sync.Mutex       // guards members, which have been queued, or were in place
	members roaring64.Bitmap // never shrinks: the stream of accounts that were unfollowed is still taken
}

var followKind = kinds.ByName("follow").Kind

// Changed implements graph.Watcher. A part has few follows but those that may bring members.
func (g *grower) Changed(edges []graph.Change, lists []graph.ListChange, hidden []dict.ID) {
	if len(lists) > 0 || len(hidden) > 0 || slices.ContainsFunc(edges, func(c graph.Change) bool { return c.Kind == followKind }) {
		g.changed.Store(true)
	}
}

// find returns the members by what the store has.
func (g *grower) find(s *graph.View) (members *roaring64.Bitmap, err error) {
	id := func(ns dict.Namespace, name string) dict.ID {
		var b intern.Batch
		n := b.Add(ns, []byte(name))
		err = errors.Join(err, s.Lookup(&b))
		return b.ID(n)
	}
	var all []uint64
	for _, did := range g.o.Around.Centers {
		all = append(all, uint64(id(dict.DID, did)))
	}
	for hop, from := 0, 0; hop < g.o.Around.Hops; hop++ {
		sources := slices.Clone(all[from:])
		from = len(all)
		for _, actor := range sources {
			more, failed := s.AppendSubjects(all, followKind, dict.ID(actor), graph.Window{})
			all, err = more, errors.Join(err, failed)
		}
	}
	for _, name := range g.o.Around.Lists {
		list, author := id(dict.URI, name), id(dict.DID, dict.AuthorityOf(name))
		all = append(all, uint64(author))
		if list != dict.None && author != dict.None {
			err = errors.Join(err, s.Listed(list, author, graph.Window{}, func(member dict.ID, _ graph.Path) { all = append(all, uint64(member)) }))
		}
	}
	members = roaring64.BitmapOf(all...)
	members.Remove(uint64(dict.None))
	return members, err
}

// join makes those accounts members of the Part that are members by what the store has, and returns the members' ids, and
// the DIDs of those that are new, or with all of all.
func (g *grower) join(ctx context.Context, all bool) (members *roaring64.Bitmap, joined []string, err error) {
	_, err = g.o.Store.ViewAcross(ctx, func(s *graph.View) error {
		found, err := g.find(s)
		if err != nil {
			return err
		}
		members, joined = roaring64.Or(found, &g.members), nil
		fresh := members
		if !all {
			fresh = roaring64.AndNot(members, &g.members)
		}
		var ids []dict.ID
		for it := fresh.Iterator(); it.HasNext(); {
			ids = append(ids, dict.ID(it.Next()))
		}
		return s.Strings(dict.DID, ids, func(_ int, did []byte) error {
			g.o.Around.Part.Join(did)
			joined = append(joined, string(did))
			return nil
		})
	})
	return members, joined, err
}

// enclose makes the store hold the part. Accounts that no longer belong to it lose what is claimed of them, because their
// commits no longer arrive.
func (g *grower) enclose(ctx context.Context) error {
	_, _, err := g.join(ctx, true)
	if err == nil {
		err = g.tell(ctx)
	}
	if err != nil {
		return err
	}
	outside, leaving, err := g.outsiders(ctx)
	for _, did := range outside {
		g.o.Around.Part.Note([]byte(did))
	}
	if err == nil {
		err = g.o.resync(ctx, batch.Cause{Leaves: true}, leaving...)
	}
	if err == nil && len(leaving) > 0 {
		g.o.Logger.Info("accounts left the part of the network", "accounts", len(leaving))
	}
	return err
}

// tell stores the part, with the number of its members.
func (g *grower) tell(ctx context.Context) error {
	a := g.o.Around.Around
	a.Members = g.o.Around.Part.Members()
	return g.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		if a.Since = b.Around.Since; slices.ContainsFunc(a.Centers, func(c string) bool { return !slices.Contains(b.Around.Centers, c) }) {
			a.Since = g.o.streamNow().Add(2 * time.Minute).UTC() // times of events may be so far behind
		}
		b.Around = a
	})
}

// run queues the members, and those that join, until ctx ends.
func (g *grower) run(ctx context.Context) {
	g.o.Store.Watch(g)
	defer g.o.Store.Unwatch(g)
	g.changed.Store(true)
	// If a repo is queued before the stream is heard, the stream's start is a hole (late_start). A relay that is down delays repos
	// by ten seconds.
	for n := 0; n < 100 && !g.o.Store.Unbroken() && outward.Wait(ctx, 100*time.Millisecond) == nil; n++ {
	}
	for n := 1; ; n++ {
		if g.changed.Swap(false) && !g.grow(ctx, 0) {
			g.changed.Store(true)
		}
		if n%5 == 0 {
			g.say()
		}
		if outward.Wait(ctx, min(time.Second, g.o.Settle)) != nil { // many changes may come at once
			return
		}
	}
}

// heal repairs a hole of the stream: it queues the repos of all members, because any may have changed in it, and asks the
// relay which other accounts are active. It is called again until the relay has answered for all of them. Nobody
// tells what others did to the centers in a hole.
func (g *grower) heal(ctx context.Context, hole uint64) {
	if g.hole != hole {
		g.o.Logger.Info("hole in the stream: fetching all repos of the part of the network again", "holes", hole)
		if g.outside = nil; !g.grow(ctx, hole) {
			return
		}
		g.hole = hole
	}
	err := g.askOutsiders(ctx)
	if err == nil {
		err = g.o.Store.SetCompared(ctx, hole)
	}
	if err != nil && ctx.Err() == nil {
		g.o.Logger.Warn("asking the relay which accounts are active failed; retrying, and until the end answers say that they are incomplete", "accounts", len(g.outside), "error", err)
	}
}

// grow queues the repos of members that have joined, and with the number of a hole, or for a kind that was added, those of all.
func (g *grower) grow(ctx context.Context, hole uint64) (done bool) {
	g.growing.Lock()
	defer g.growing.Unlock()
	cause, sweep := batch.Cause{Reason: "around"}, g.o.Store.SweepDue()
	switch {
	case sweep != 0:
		cause.Reason = graph.KindAdded
	case hole != 0:
		cause.Reason = "hole"
	}
	members, joined, err := g.join(ctx, sweep != 0 || hole != 0)
	if g.members.IsEmpty() { // the store may not have these yet
		joined = append(joined, g.o.Around.Centers...)
		for _, list := range g.o.Around.Lists {
			joined = append(joined, dict.AuthorityOf(list))
		}
	}
	queued := 0
	for some := range slices.Chunk(joined, pageSize) {
		if err == nil {
			err = g.enqueue(ctx, cause, some, &queued)
		}
	}
	if err == nil && len(joined) > 0 {
		err = g.tell(ctx)
	}
	if err == nil && sweep != 0 {
		err = g.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Sweep, b.Swept = sweep, sweep })
	}
	if err != nil {
		if ctx.Err() == nil {
			g.o.Logger.Error("queueing repos of the part of the network failed; retrying", "error", err)
		}
		return false
	}
	g.members.Or(members)
	if queued > 0 {
		const each = 100 * time.Millisecond // hosts allow some ten repos a second
		g.o.Logger.Info("fetching repos of the part of the network", "accounts", g.o.Around.Part.Members(), "queued", queued, "about", (time.Duration(queued) * each).String())
	}
	return true
}

// askOutsiders asks the relay which of the other accounts with records are active. If it cannot tell of one, the next call goes on
// with the others.
func (g *grower) askOutsiders(ctx context.Context) error {
	var err error
	if len(g.outside) == 0 {
		if g.outside, _, err = g.outsiders(ctx); err != nil || g.o.Relay == "" {
			return err
		}
	}
	for len(g.outside) > 0 {
		var status struct{ Active *bool }
		did := g.outside[0]
		g.outside = g.outside[1:]
		err = g.client.ask(ctx, g.o.Relay, "com.atproto.sync.getRepoStatus", url.Values{"did": {did}}, &status)
		if a, ok := errors.AsType[*outward.Answer](err); ok && a.IsFinal() { // it does not know the account
			err = nil
		} else if err == nil && status.Active != nil {
			var b batch.Batch
			b.AddStatus([]byte(did), *status.Active)
			b.Event(0).Flags |= batch.IsOutside
			err = g.o.apply(ctx, &b)
		}
		if err != nil {
			g.outside = append(g.outside, did)
			return err
		}
	}
	return nil
}

// outsiders returns the accounts with records that are no members (all), and those that have just left: their repos are whole, or
// queued.
func (g *grower) outsiders(ctx context.Context) (all, leaving []string, err error) {
	_, err = g.o.Store.ViewAcross(ctx, func(s *graph.View) error {
		var ids []dict.ID
		var partial []bool
		all, leaving = nil, nil
		err := s.EachAccount(dict.None, func(id dict.ID, st *graph.RepoState) bool {
			ids, partial = append(ids, id), append(partial, st.Has(graph.FlagPartial))
			return true
		})
		return errors.Join(err, s.Strings(dict.DID, ids, func(i int, did []byte) error {
			if g.o.Around.Part.Has(did) {
				return nil
			}
			if all = append(all, string(did)); !partial[i] {
				leaving = append(leaving, string(did))
			}
			return nil
		}), s.Resyncs(func(did string, _ graph.Resync) error {
			if !g.o.Around.Part.Has([]byte(did)) {
				leaving = append(leaving, did)
			}
			return nil
		}))
	})
	if err != nil {
		return nil, nil, err
	}
	return all, leaving, nil
}

// enqueue queues repos for a cause; with "around", those that are not in place.
func (g *grower) enqueue(ctx context.Context, cause batch.Cause, dids []string, queued *int) error {
	if err := g.queue.awaitRoom(ctx, "", nil, 0); err != nil {
		return err
	}
	var b batch.Batch
	err := g.o.Store.View(ctx, func(s *graph.View) error {
		b.Reset()
		for _, did := range dids {
			st, _, row, err := s.Account(did)
			if err != nil {
				return err
			}
			gone := st.DeletionSource != 0 && st.Has(graph.FlagHidden) // the stream says that it was deleted
			if !gone && (cause.Reason != "around" || row == nil && !st.Whole()) {
				b.AddResync([]byte(did), cause)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	*queued += b.Events()
	return g.o.apply(ctx, &b)
}

// say logs the progress, if repos wait that are due soon.
func (g *grower) say() {
	var st Status
	g.queue.report(&st)
	due, all := st.Waiting-st.Later, int64(g.o.Around.Part.Members())
	if due > 0 {
		remaining := "unknown"
		if done := g.due - due; done > 0 {
			remaining = (time.Duration(due*5/done) * time.Second).String()
		}
		g.o.Logger.Info("fetching repos of the part of the network", "fetched", all-due, "of", all, "remaining", remaining)
	} else if g.due > 0 {
		failed := int64(0)
		for _, n := range st.Failed {
			failed += n
		}
		g.o.Logger.Info("fetched the part of the network", "fetched", all-st.Later-failed, "of", all, "retried_later", st.Later, "given_up", failed)
	}
	g.due = due
}
