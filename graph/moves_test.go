package graph_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// go test ./graph -run TestMoves -moves.seeds 5000 -timeout 1h is the long run.
var movesSeeds = flag.Uint64("moves.seeds", 100, "seeds of TestMoves")

// movedPartitions are so few that moves are quick, and so many that four writers have several.
var movedPartitions = dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 8}

// A fleet is the writers of one store, which come, stop, are killed, and freeze while a relay sends a history. Each does what
// skein serve does.
type fleet struct {
	t         *testing.T
	store     *memkv.Store
	stream    []*oracle.Event
	began     time.Time // when the relay sent the first
	every     time.Duration
	lanes     int // 1, if processes freeze: in synthetic time, none may wait for a lock meanwhile
	moves     atomic.Int64
	mu        sync.Mutex // guards processes
	processes []*process
}

// process is a writer.
type process struct {
	kv.Store

	name   string
	cancel context.CancelFunc
	done   chan struct{}
	graph  atomic.Pointer[graph.Store]

	mu     sync.Mutex
	writes int
	at     func(n int) fate // what happens to the n-th write
	dead   bool
	ill    time.Time // until when it is frozen
}

// fate is what happens at a write.
type fate struct {
	killed string        // "before" or "after" it
	frozen time.Duration // before it or, with inside, before its commit
	inside bool
}

var errDead = errors.New("the process was killed")

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// View does not answer a dead process.
func (p *process) View(ctx context.Context, fn func(kv.Reader) error) error {
	if p.isDead() {
		return errDead
	}
	return p.Store.View(ctx, fn)
}

func (p *process) Update(ctx context.Context, fn func(kv.Txn) error) error {
	p.mu.Lock()
	p.writes++
	var f fate
	if p.at != nil {
		f = p.at(p.writes)
	}
	p.dead = p.dead || f.killed == "before"
	until := p.ill // a frozen process writes nothing else
	if f.frozen > 0 {
		p.ill = time.Now().Add(f.frozen)
		if !f.inside {
			until = p.ill
		}
	}
	p.mu.Unlock()
	time.Sleep(time.Until(until))
	if p.isDead() {
		return errDead
	}
	err := p.Store.Update(ctx, func(tx kv.Txn) error {
		err := fn(tx)
		if f.inside {
			time.Sleep(f.frozen)
			f.inside = false
		}
		return err
	})
	if f.killed == "after" {
		p.mu.Lock()
		p.dead = true
		p.mu.Unlock()
		p.cancel()
		return errDead
	}
	return err
}

// start starts a process. at may be nil.
func (f *fleet) start(at func(n int) fate) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Store: f.store, name: fmt.Sprint("p", len(f.processes)), cancel: cancel, done: make(chan struct{}), at: at}
	f.processes = append(f.processes, p)
	go func() {
		defer close(p.done)
		err := f.serve(ctx, p)
		if err != nil && !errors.Is(err, errDead) && !errors.Is(err, graph.ErrClaimed) && !errors.Is(err, context.Canceled) {
			f.t.Errorf("%s: %v", p.name, err)
		}
	}()
	return p
}

// serve is what skein serve does: see app.server.index.
func (f *fleet) serve(ctx context.Context, p *process) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s, err := graph.Open(ctx, p, graph.Options{
		Intern: intern.Options{Settings: movedPartitions, CacheBytes: 64 << 10, Owner: p.name}, StateCache: 4 << 10, SliceSize: 7,
		Lanes: f.lanes, Joins: true, Beat: time.Second, Fenced: func(err error) { stop(err) },
	})
	if err != nil {
		return err
	}
	p.graph.Store(s)
	var following sync.WaitGroup
	following.Go(func() { _ = s.FollowWriters(ctx) })
	for err == nil && ctx.Err() == nil {
		if err = f.follow(ctx, s); err == nil && ctx.Err() == nil {
			f.moves.Add(1)
			err = s.Move(ctx)
		}
	}
	stop(err)
	following.Wait()
	return errors.Join(context.Cause(ctx), err, s.Close(context.Background()))
}

// follow applies the stream from the store's cursor on, until a move is due.
func (f *fleet) follow(ctx context.Context, s *graph.Store) error {
	from, found := s.Cursor("relay")
	if s.Writes() {
		if err := s.ChangeBackfill(ctx, func(*format.Backfill) {}); err != nil { // as a backfill's progress
			return err
		}
		if !found {
			if err := s.Rewind(ctx, "relay", 0, false, nil); err != nil { // as with --cursor 0
				return err
			}
		}
	}
	next, _ := slices.BinarySearchFunc(f.stream, int64(from.Seq)+1, func(e *oracle.Event, seq int64) int { return int(e.Seq - seq) })
	var b batch.Batch
	for {
		for ; s.Writes() && next < len(f.stream) && time.Since(f.began) >= time.Duration(next)*f.every; next++ {
			if _, ops, _ := b.Size(); ops > 20 {
				break
			}
			e := f.stream[next]
			fill(&b, e)
			switch next % 40 {
			case 11:
				b.AddDeadLetter(format.DeadLetter{Seq: format.Seq(e.Seq), DID: e.DID, Reason: "test"})
			case 31:
				b.AddGap(format.Gap{After: format.Seq(e.Seq), Reason: "test", Suspect: next == 31})
			}
		}
		switch {
		case !b.Empty():
			if err := s.Apply(ctx, "relay", &b); err != nil {
				return err
			}
			b.Reset()
		case s.Erasing():
			if err := s.EraseSlice(ctx); err != nil {
				return err
			}
		}
		select {
		case <-s.Due():
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// living returns the processes that run.
func (f *fleet) living() (all []*process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		select {
		case <-p.done:
		default:
			if !p.isDead() {
				all = append(all, p)
			}
		}
	}
	return all
}

// watchPartitions fails if a partition is without a living writer for ten seconds, while there is one to take it, and no other dies.
func (f *fleet) watchPartitions(ctx context.Context) {
	var written [8]time.Time
	since, alive := map[*process]time.Time{}, 0 // when each came, or was last frozen
	for ctx.Err() == nil {
		now, parts, healthy, well := time.Now(), format.Partitions(0), time.Duration(0), 0
		for _, p := range f.living() {
			p.mu.Lock()
			ill := now.Before(p.ill)
			p.mu.Unlock()
			s := p.graph.Load()
			if _, known := since[p]; !known || ill || s == nil {
				since[p] = now
				continue
			}
			healthy, well = max(healthy, now.Sub(since[p])), well+1
			for part, did := range didOf {
				if s.Owns([]byte(did)) {
					parts |= 1 << part
				}
			}
		}
		for part := range written {
			if parts.Has(uint8(part)) || well < alive || written[part].IsZero() {
				written[part] = now
			} else if without := now.Sub(written[part]); min(without, healthy) >= 10*time.Second {
				f.t.Errorf("nobody writes partition %d for %v", part, without)
				written[part] = now
			}
		}
		alive = well
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// didOf has a DID of each partition.
var didOf = func() (all [8]string) {
	for i := range 1000 {
		did := fmt.Sprintf("did:plc:a%d", i)
		all[movedPartitions.PartitionOf([]byte(did))] = did
	}
	return all
}()

// newFleet makes a store and a history. The store's first writer says that all accounts are known.
func newFleet(t *testing.T, seed uint64, accounts, events int, every time.Duration, faults memkv.Faults) *fleet {
	f := &fleet{t: t, store: memkv.Open(memkv.Options{Merger: merger(), Faults: faults}), began: time.Now(), every: every}
	h := oracle.NewHistory(seed, accounts)
	for range events {
		f.stream = append(f.stream, h.Next())
	}
	s := openWriter(t, f.store, movedPartitions, false)
	err := s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Roster = format.Roster{AsOf: time.Now(), Source: format.RosterRepos} })
	must(t, errors.Join(err, s.Close(t.Context())))
	return f
}

// end waits until all is applied, ends all processes, and compares the store with the model.
func (f *fleet) end() {
	t := f.t
	t.Helper()
	for _, p := range f.living() {
		p.mu.Lock()
		p.at = nil
		p.mu.Unlock()
	}
	last := f.stream[len(f.stream)-1].Seq
	deadline := time.Now().Add(2 * time.Minute)
	for applied := false; !applied; time.Sleep(time.Second) {
		if len(f.living()) == 0 { // the last one was taken over while it was frozen
			f.start(nil)
		}
		var parts format.Partitions
		for _, p := range f.living() {
			s := p.graph.Load()
			if s == nil {
				continue
			}
			for part, did := range didOf {
				if c, found := s.CursorOf("relay", []byte(did)); found && int64(c.Seq) == last && !s.Erasing() {
					parts |= 1 << part
				}
			}
		}
		if applied = parts == format.AllPartitions(movedPartitions.Partitions); !applied && time.Now().After(deadline) {
			t.Fatalf("partitions %x of %d are not at the end of the stream", parts, movedPartitions.Partitions)
		}
	}
	time.Sleep(30 * time.Second) // none is frozen
	if len(f.living()) == 0 {
		f.start(nil)
		time.Sleep(10 * time.Second)
	}
	for _, p := range f.living() {
		noted, _ := p.graph.Load().Holes()
		must(t, p.graph.Load().SetCompared(t.Context(), noted))
	}
	for _, p := range f.processes {
		p.cancel()
		<-p.done
	}
	m := oracle.New()
	for _, e := range f.stream {
		m.Apply(e)
	}
	s, err := graph.Open(t.Context(), f.store, graph.Options{ReadOnly: true})
	must(t, err)
	compareViews(t, views(t, s), m.Views())
	compareCounts(t, s, m)
	verify(t, f.store)
	var want, got []string
	for i, e := range f.stream {
		if i%40 == 11 {
			want = append(want, fmt.Sprintf("relay at %d: test", e.Seq))
		}
	}
	for _, n := range noted(t, f.store) {
		if strings.Contains(n, " at ") {
			got = append(got, n)
		}
	}
	// One that was noted right before a kill may be there twice: by two writers.
	if slices.Sort(want); !slices.Equal(slices.Compact(got), want) {
		t.Errorf("the dead letters are %q, want %q", got, want)
	}
	must(t, s.View(t.Context(), func(v *ask.View) error {
		k := v.Known()
		if !k.Past.Roster.Known() || k.Holes.Noted == 0 || k.Holes.Uncompared() {
			t.Errorf("%+v, %+v", k.Past, k.Holes)
		}
		return err
	}))
}

// TestMoves: writers come, stop, are killed and freeze at any of their writes, a move's own ones among them. Nothing is lost, and nothing
// is there twice. No partition is without a writer for more than ten seconds while there is one.
func TestMoves(t *testing.T) {
	var moves int64
	for seed := range *movesSeeds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			f := newFleet(t, seed, 20, 400, 100*time.Millisecond, memkv.Faults{Seed: seed, Conflict: 0.1 * float64(seed%3), Unknown: 0.1 * float64(seed%3)})
			f.lanes = 1 + int(seed/3%2)
			ctx, stop := context.WithCancel(t.Context())
			watched := make(chan struct{})
			f.start(nil)
			time.Sleep(time.Second)
			go func() { f.watchPartitions(ctx); close(watched) }()
			for range 12 {
				time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
				living := f.living()
				switch n := rng.IntN(10); {
				case n < 4 && len(living) < 4 || len(living) == 0:
					f.start(nil)
				case n < 6:
					living[rng.IntN(len(living))].cancel()
				default:
					p := living[rng.IntN(len(living))]
					in := fate{killed: "before"}
					switch rng.IntN(2 + 2*(2-f.lanes)) {
					case 0:
						in = fate{killed: "after"}
					case 2:
						in = fate{frozen: time.Duration(rng.Int64N(int64(15 * time.Second)))}
					case 3:
						in = fate{frozen: time.Duration(rng.Int64N(int64(15 * time.Second))), inside: true}
					}
					p.mu.Lock()
					at := p.writes + 1 + rng.IntN(12)
					p.at = func(n int) fate {
						if n == at {
							return in
						}
						return fate{}
					}
					p.mu.Unlock()
					if rng.IntN(2) == 0 { // in a move
						f.start(nil)
					}
				}
			}
			stop()
			<-watched
			f.end()
			moves += f.moves.Load()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d moves of %d fleets", moves, *movesSeeds)
}

// TestMoveSteps: a process is killed, or freezes for longer than others wait, at each of its writes of a move and of the events around it: one
// that gives partitions up to a new one, the new one, and those that share out what a dead one had.
func TestMoveSteps(t *testing.T) {
	const alone = 2 * time.Second
	happened := 0
	for _, died := range []bool{false, true} { // what moves partitions: a third process that dies, or a second one that comes
		for side := range 2 {
			for _, what := range []fate{{killed: "before"}, {killed: "after"}, {frozen: 7 * time.Second}, {frozen: 7 * time.Second, inside: true}} {
				for n, more := 1, true; more && !t.Failed(); n++ {
					synctest.Test(t, func(t *testing.T) {
						f := newFleet(t, uint64(n), 10, 100, 100*time.Millisecond, memkv.Faults{})
						f.lanes = 1
						processes := []*process{f.start(nil)}
						if time.Sleep(alone); died {
							processes = append(processes, f.start(nil))
							third := f.start(nil)
							time.Sleep(2 * alone)
							third.mu.Lock()
							third.dead = true
							third.mu.Unlock()
							third.cancel()
							time.Sleep(2 * alone)
						} else {
							processes = append(processes, f.start(nil))
						}
						p := processes[side]
						p.mu.Lock()
						at, isDone := p.writes+n, false
						p.at = func(n int) fate {
							if n != at {
								return fate{}
							}
							isDone = true
							return what
						}
						p.mu.Unlock()
						time.Sleep(2 * alone)
						p.mu.Lock()
						more = isDone
						p.mu.Unlock()
						f.end()
					})
					if happened++; t.Failed() {
						t.Fatalf("a third process died: %t; side %d, write %d: %+v", died, side, n, what)
					}
				}
			}
		}
	}
	t.Logf("%d kills and freezes", happened)
}
