package backfill

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/synth"
)

// put puts a record into an account's repo, or deletes it if there is no subject, and delivers the commit. A list item
// gets the list, too.
func (w *world) put(x *index, a *account, path, subject, list string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	since, prev := a.rev, a.data
	if a.records[path] = subject; subject == "" {
		delete(a.records, path)
	}
	w.clock += 1 << 12
	a.rev = w.clock
	a.car()
	w.seq++
	x.deliver(w.t, func(b *batch.Batch) {
		b.AddCommit(w.seq, &batch.Commit{DID: []byte(a.did), Rev: dict.AppendTID(nil, a.rev), Since: dict.AppendTID(nil, since), Data: a.data[:], PrevData: prev[:]})
		collection, rkey, _ := strings.Cut(path, "/")
		for _, k := range kinds.BuiltIn.Collection(collection).Kinds {
			switch {
			case subject == "":
				b.AddDelete(k.Kind, []byte(rkey))
			case k.Kind == kinds.ListItem:
				b.AddPut(k.Kind, []byte(rkey), []byte(list))
			default:
				b.AddPut(k.Kind, []byte(rkey), []byte(subject))
			}
		}
		b.Seen(w.seq, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
	})
}

// The members of a part are found in the store, at its start and while it grows. After a hole all are fetched again, also
// those that were unfollowed. A part is refused what is of others.
func TestAroundMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	var all []*account
	for i := range 10 {
		all = append(all, w.add(i, 0))
	}
	center, friend, later, second, author, listed, stranger, joins, harmed, gone := all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8], all[9]
	follow := func(of, by *account, rkey string) {
		by.records["app.bsky.graph.follow/"+rkey] = of.did
		by.packed = nil
		by.car()
	}
	follow(friend, center, "3mb2kxx5ts22a")
	follow(second, friend, "3mb2kxx5ts22a")
	list := "at://" + author.did + "/app.bsky.graph.list/3mb2kxx5ts22a"
	store := newStore()
	around := NewAround(graph.Around{Centers: []string{center.did}, Lists: []string{list}, Hops: 1})
	x := w.index(store, func(o *Options) { o.Around, o.Tries = around, 1 })
	is := func(whole ...*account) {
		t.Helper()
		await(t, "the members, and nobody else, to be in place", func() bool {
			for _, a := range all {
				st, row := x.stateOf(t, a.did)
				if slices.Contains(whole, a) != (st.Whole() && row == nil && st.Rev == format.Rev(a.rev)) {
					return false
				}
			}
			return true
		})
		if n := x.g.Backfill().Around.Members; n != len(whole) {
			t.Errorf("%d members, want %d", n, len(whole))
		}
	}
	is(center, friend, author)
	w.put(x, center, "app.bsky.graph.follow/3mb2kxx5ts22b", later.did, "")
	is(center, friend, author, later)
	w.put(x, author, "app.bsky.graph.listitem/3mb2kxx5ts22b", listed.did, list)
	w.put(x, author, "app.bsky.graph.listitem/3mb2kxx5ts22c", stranger.did, list+"b")
	is(center, friend, author, later, listed)

	w.put(x, center, "app.bsky.graph.follow/3mb2kxx5ts22b", "", "")
	rng := rand.New(rand.NewPCG(1, 1))
	for _, a := range []*account{later, listed, author, stranger} {
		w.commit(rng, a, nil)
	}
	w.seq++
	x.deliver(t, func(b *batch.Batch) { // an outsider that is active again in the hole
		w.commit(rng, stranger, b)
		b.Event(0).Flags |= batch.IsOutside
		w.seq++
		b.AddAccount(w.seq, []byte(stranger.did), false, false)
		b.Event(1).Flags |= batch.IsOutside
		b.Seen(w.seq, nil)
	})
	w.change(func() { w.unsure = map[string]int{stranger.did: 3} })
	asked := w.hosts[0].requests.Load() + w.hosts[1].requests.Load()
	x.deliver(t, func(b *batch.Batch) { b.AddGap(batch.Gap{After: w.seq, Reason: "test", Suspect: true}) })
	is(center, friend, author, later, listed)
	await(t, "the hole to be closed", func() bool { return !x.uncompared() })
	if n := w.hosts[0].requests.Load() + w.hosts[1].requests.Load() - asked; n != 5 {
		t.Errorf("%d requests for repos after a hole, while the relay failed", n)
	}
	if st, _ := x.stateOf(t, stranger.did); st.Has(format.FlagHidden) {
		t.Error("an outsider that the relay shows as active is hidden")
	}

	for what, err := range map[string]error{
		"an outsider": x.m.Resync(t.Context(), batch.Cause{Reason: "operator"}, center.did, stranger.did), "its host": x.m.Resync(t.Context(), batch.Cause{Reason: "operator", Trust: true}, stranger.did),
		"all hosts": x.m.Hosts(t.Context()), "an archive": x.m.Archive(t.Context(), "https://archive.example.com"),
	} {
		if err == nil || !strings.Contains(err.Error(), "part of the network") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(stranger.car())); err == nil {
		t.Error("the file of an outsider was placed")
	}
	x.end()

	// Two hops. Unfollowed accounts leave, and are taken out of the queue, fetched before or not; an outsider with missed events is not fetched.
	x.deliver(t, func(b *batch.Batch) {
		b.AddResync([]byte(later.did), batch.Cause{Reason: "test"})
		b.AddResync([]byte(gone.did), batch.Cause{Reason: "test"})
	})
	w.seq++
	x.deliver(t, func(b *batch.Batch) {
		b.AddCommit(w.seq, &batch.Commit{DID: []byte(harmed.did)})
		b.Event(0).Flags |= batch.IsOutside
		b.Seen(w.seq, nil)
	})
	must(t, x.g.Close(t.Context()))
	around = NewAround(graph.Around{Centers: []string{center.did}, Hops: 2})
	x = w.index(store, func(o *Options) { o.Around = around })
	is(center, friend, second)
	d := wire.Decoder{Kinds: kinds.BuiltIn, Part: around.Part}
	for _, a := range []*account{later, listed, author, harmed, gone, stranger} {
		var b batch.Batch
		var m wire.Message
		must(t, wire.Parse(synth.AppendAccount(nil, []byte(a.did), 1, nil, true, ""), &m))
		if d.Add(&m, &b); (b.Events() == 1) != (a == later || a == listed || a == author || a == harmed || a == stranger) { // the other has no records
			t.Errorf("%s: %d events of the status of an outsider", a.did, b.Events())
		}
		if a == stranger {
			continue
		}
		if st, row := x.stateOf(t, a.did); !st.Has(format.FlagPartial) || row != nil || around.Part.Has([]byte(a.did)) {
			t.Errorf("%s has left, and is %+v, queued %+v", a.did, st, row)
		}
	}
	w.put(x, friend, "app.bsky.graph.follow/3mb2kxx5ts22d", joins.did, "")
	is(center, friend, second, joins)
	x.end()
	must(t, x.g.Close(t.Context()))

	// A kind is added: all members are fetched again.
	var err error
	w.kinds, err = kinds.Parse("app.bsky.feed.threadgate post at-uri gated gaters")
	must(t, err)
	asked = w.hosts[0].requests.Load() + w.hosts[1].requests.Load()
	x = w.index(store, func(o *Options) { o.Around = NewAround(graph.Around{Centers: []string{center.did}, Hops: 2}) })
	await(t, "the end of the sweep", func() bool { return x.g.SweepDue() == 0 })
	is(center, friend, second, joins)
	if n := w.hosts[0].requests.Load() + w.hosts[1].requests.Load() - asked; n < 4 {
		t.Errorf("%d repos were fetched after a kind was added", n)
	}
	x.end()

	whole := w.index(newStore(), nil)
	whole.deliver(t, func(b *batch.Batch) { b.AddAccount(1, []byte(stranger.did), true, false); b.Seen(1, nil) })
	whole.end()
	whole.m.grower = &grower{o: &Options{Store: whole.g, Around: around}}
	if err := whole.m.Enclose(t.Context()); !errors.Is(err, ErrAround) {
		t.Errorf("a store of the whole network: %v", err)
	}
}

// A repo that cannot be fetched because a flag is wrong waits or is given up with a warning, and the next start tries it again.
func TestCorrectedFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, store := w.add(0, 3), newStore()
	for _, wrong := range []string{"the PLC directory http://127.0.0.1:1 does not answer (--plc names another)", "--allow-private-hosts", "--allow-private-hosts", ""} {
		log := filepath.Join(t.TempDir(), "log")
		f, err := os.Create(log)
		must(t, err)
		x := w.index(store, func(o *Options) {
			o.Around, o.TrustHosts, o.AllowPrivateHosts = NewAround(graph.Around{Centers: []string{a.did}, Hops: 1}), false, !strings.HasPrefix(wrong, "--")
			if o.Logger = slog.New(slog.NewTextHandler(f, nil)); strings.HasPrefix(wrong, "the") {
				o.PLC = "http://127.0.0.1:1"
			}
		})
		await(t, wrong, func() bool {
			st, row := x.stateOf(t, a.did)
			said, _ := os.ReadFile(log)
			isSaid := strings.Contains(string(said), "level=WARN") && strings.Contains(string(said), wrong)
			return wrong == "" && st.Whole() && row == nil || isSaid && row != nil && strings.Contains(row.Detail, wrong) && row.Failure != ""
		})
		x.end()
		must(t, errors.Join(x.g.Close(t.Context()), f.Close()))
	}
}

// The repos of a new part are fetched once the stream is heard, so that its start is not recorded as a hole.
func TestAroundHearsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, other := w.add(0, 3), w.add(1, 3).did
	w.deaf = true
	of := func(centers ...string) func(*Options) {
		return func(o *Options) { o.Around = NewAround(graph.Around{Centers: centers, Hops: 1}) }
	}
	x := w.index(newStore(), of(a.did, other))
	time.Sleep(200 * time.Millisecond)
	must(t, x.g.SetLive(t.Context(), "stream", time.Now(), nil))
	await(t, "the repo", func() bool { st, _ := x.stateOf(t, a.did); return st.Whole() })
	if noted, _ := x.g.Holes(); noted != 0 {
		t.Errorf("%d holes", noted)
	}
	since := x.g.Backfill().Around.Since
	for _, centers := range [][]string{{other, a.did}, {other}, {a.did, other}} { // the last has one that was not a center
		x.end()
		must(t, x.g.Close(t.Context()))
		x = w.index(x.store, of(centers...))
		if now := x.g.Backfill().Around.Since; now.Equal(since) != (centers[0] == other) {
			t.Errorf("heard since %v, and with the centers %v since %v", since, centers, now)
		}
	}
}
