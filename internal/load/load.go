// Package load is the load test: a simulated relay in a process of its own, the
// indexer as users run it, and the comparison of what came out with what the
// network's events say.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/network"
	"skein.blue/internal/relay"
)

// Options say what is offered to what.
type Options struct {
	Store    app.StoreOptions
	Network  network.Options
	Rate     float64 // events per second; 0: as fast as they are taken
	Duration time.Duration
	Prefill  int64 // edges that are there before the clock starts
	// Backfill is how many events lie behind when the index begins, in a new store: it
	// fetches all repos meanwhile. 0: none.
	Backfill int64
	Hosts    int  // of the repos, with Backfill
	Healthy  bool // none of them does wrong
	Faults   relay.Faults
	// Simulator starts a relay in another process.
	Simulator func(ctx context.Context, o SimulatorOptions) (Simulator, error)
	// Kill has the relay killed in the middle, and started again.
	Kill bool
	// KeepUncompacted leaves out the rewriting of the store before it is measured.
	KeepUncompacted bool
	// Profile is a file for a profile of the processor's time while the clock
	// runs; "" is none.
	Profile string
	// Inspect, if set, is shown the index once the clock has stopped.
	Inspect func(*app.Index)
	// Stderr is told how far it is.
	Stderr io.Writer
	// Progress, if set, is told instead how much has been done of how much, and of what.
	Progress func(done, total int64, what string)
}

// SimulatorOptions say which relay is wanted.
type SimulatorOptions struct {
	Network network.Options
	From    int64
	Events  int64
	Rate    float64
	Window  int
	Faults  relay.Faults
	Hosts   int    // that export repos, some of them with faults
	Healthy bool   // none of them
	Address string // where it listens; "" is anywhere
}

// A Simulator is a relay in another process.
type Simulator interface {
	// Address is its host and port.
	Address() string
	// Usage returns the processor time it has used, and its peak memory in bytes.
	Usage() (cpu time.Duration, peak int64)
	// Kill ends it as SIGKILL does, Stop as it likes to end.
	Kill()
	Stop() error
}

// ErrOther is returned for a store that another network, or another source, was
// indexed into.
var ErrOther = errors.New("the store is not one that this load made")

// sourcePrefix begins the name of the source of every store that load makes.
const sourcePrefix = "load:"

func (o *Options) source() string {
	s := fmt.Sprintf("%sseed=%d,accounts=%d", sourcePrefix, o.Network.Seed, network.New(o.Network).Accounts())
	if o.Faults.Corrupt > 0 {
		s += fmt.Sprintf(",corrupt=%v", o.Faults.Corrupt)
	}
	if o.Faults.Jump > 0 {
		s += fmt.Sprintf(",jump=%d", o.Faults.Jump)
	}
	return s
}

// run is one load.
type run struct {
	o       Options
	x       *app.Index
	source  string
	report  Report
	lags    histogram
	behind  histogram
	from    int64     // the last event that was there before
	started time.Time // when the clock started
	cpu     time.Duration

	mu      sync.Mutex // guards what follows
	sim     Simulator
	simBase time.Duration // what it had used when the clock started
	simCPU  time.Duration // what those that were killed used after that
	simPeak int64
	failed  error // why the relay is not to be waited for
}

// Run offers, indexes, compares, and reports. Problems are what the comparison
// found, at most some.
func Run(ctx context.Context, o Options) (report Report, problems []string, err error) {
	r := &run{o: o, source: o.source()}
	if err := r.open(ctx); err != nil {
		return r.report, nil, err
	}
	from, err := r.prefill(ctx)
	if err == nil {
		err = r.index(ctx, from)
	}
	if err == nil {
		err = r.settle(ctx)
	}
	if err := errors.Join(err, r.x.Close(ctx)); err != nil {
		return r.report, nil, err
	}
	problems, err = r.verify(ctx)
	r.report.Verified = err == nil && len(problems) == 0
	return r.report, problems, err
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.o.Stderr, "load: "+format+"\n", args...) }

// open opens the store, which is new, or one that a load of the same network
// made.
func (r *run) open(ctx context.Context) (err error) {
	app.LimitMemory(r.o.Store)
	so := r.o.Store
	so.Create = true
	if r.o.Backfill > 0 {
		so.Backfill = &backfill.Options{
			AllowPrivateHosts: true, Tries: 15, HostTries: 100, Retry: 200 * time.Millisecond, HostRetry: 50 * time.Millisecond,
			HeaderTimeout: 3 * time.Second, IdleTimeout: 3 * time.Second, Fetchers: 16,
		}
	}
	if r.x, err = app.OpenIndex(ctx, so); err != nil {
		return err
	}
	for _, c := range r.x.Graph.Cursors() {
		if r.o.Faults.Jump > 0 {
			return errors.Join(fmt.Errorf("%w: %s holds events already, and with a jump of the numbering it must be new", ErrOther, r.o.Store.Store), r.x.Close(ctx))
		}
		if c.Source != r.source {
			other := fmt.Errorf("%w: %s holds %s up to seq %d, and this would be %s; give it another --store, or the --seed and --accounts that it was made with",
				ErrOther, r.o.Store.Store, c.Source, c.Seq, r.source)
			return errors.Join(other, r.x.Close(ctx))
		}
	}
	counts, err := r.counts(ctx)
	if err != nil {
		return errors.Join(err, r.x.Close(ctx))
	}
	if _, has := r.x.Graph.Cursor(r.source); !has && counts.Accounts > 0 {
		return errors.Join(fmt.Errorf("%w: %s holds %d accounts of no source", ErrOther, r.o.Store.Store, counts.Accounts), r.x.Close(ctx))
	}
	return nil
}

func (r *run) counts(ctx context.Context) (c format.Counts, err error) {
	err = r.x.Graph.View(ctx, func(s *ask.View) error { c, err = s.Counts(); return err })
	return c, err
}

func edges(c format.Counts) (n int64) {
	for _, v := range c.Records {
		n += v
	}
	return n
}

// erase does what deletions have left to do.
func (r *run) erase(ctx context.Context) error {
	for r.x.Graph.Erasing() {
		if err := r.x.Graph.EraseSlice(ctx); err != nil {
			return err
		}
	}
	return nil
}

// event is the number of the last event that a cursor stands for. Only a store
// that begins with this run may see a jump.
func (r *run) event(seq int64) int64 { return r.o.Faults.Event(r.from, r.o.Rate, seq) }

// simulator starts the relay at an event.
func (r *run) simulator(ctx context.Context, from, events int64) (err error) {
	window := relay.DefaultWindow
	if r.o.Rate > 0 { // a minute's worth and more
		window = max(window, int(r.o.Rate*(60+r.o.Faults.Stall.Seconds()*1.2)))
	}
	sim, err := r.o.Simulator(ctx, SimulatorOptions{
		Network: r.o.Network, From: from, Events: events, Rate: r.o.Rate, Window: min(window, maxWindow), Faults: r.o.Faults, Hosts: r.o.Hosts, Healthy: r.o.Healthy,
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.sim = sim
	r.mu.Unlock()
	return nil
}

// maxWindow bounds how many events the relay keeps: 1.5 GB.
const maxWindow = 16 << 20

// startClock notes what was used until now.
func (r *run) startClock() {
	r.started = time.Now()
	r.cpu, _ = usage()
	r.mu.Lock()
	r.simBase, _ = r.sim.Usage()
	r.mu.Unlock()
}

// relayUsage returns what the relays have used since then, and the most memory
// that one had.
func (r *run) relayUsage() (cpu time.Duration, peak int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cpu, peak = r.sim.Usage()
	return r.simCPU + cpu - r.simBase, max(peak, r.simPeak)
}

// give ends the run with an error.
func (r *run) give(err error, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
	end()
}

// settle lets the store come to rest, and measures it.
func (r *run) settle(ctx context.Context) error {
	if err := r.erase(ctx); err != nil {
		return err
	}
	counts, err := r.counts(ctx)
	if err != nil {
		return err
	}
	if p, ok := r.x.KV.(*pebblekv.Store); ok && !r.o.KeepUncompacted {
		r.say("compacting")
		if err := p.Compact(ctx); err != nil {
			return err
		}
	}
	if err := r.x.Close(ctx); err != nil { // leaves no log of what is in tables
		return err
	}
	x, err := app.OpenIndex(ctx, r.o.Store)
	if err != nil {
		return err // r.x is closed, and may be again
	}
	r.x = x
	rep := &r.report
	rep.Edges = edges(counts)
	for _, n := range counts.Strings {
		rep.Interned += n
	}
	rep.DiskBytes = r.x.KV.DiskBytes()
	if rep.Edges > 0 {
		rep.BytesPerEdge = math.Round(float64(rep.DiskBytes)/float64(rep.Edges)*100) / 100
	}
	return nil
}

// verify compares the store with the model, after it was closed and opened.
func (r *run) verify(ctx context.Context) (problems []string, err error) {
	limit := debug.SetMemoryLimit(math.MaxInt64) // the model is no part of the indexer
	defer debug.SetMemoryLimit(limit)
	so := r.o.Store
	so.Create = false
	x, err := app.OpenIndex(ctx, so)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close(ctx)) }()
	every := 1
	if r.report.Edges > checkedWhole {
		every = int(r.report.Edges/(checkedWhole/2)) + 1
	}
	m := newModel(r.o.Network, r.o.Faults, every)
	to := r.reached(x.Graph, m)
	r.say("comparing with the model: %d events, one account and one subject in %d", to, every)
	m.past = r.o.Backfill > 0
	if err := m.run(ctx, to); err != nil {
		return nil, err
	}
	problems, sets, err := verify(ctx, x, m)
	r.say("%d sets compared, %d differences", sets, len(problems))
	return problems, err
}

// reached has the model stop where the index has, in each account's partition, and returns the
// last event that the index has applied of any.
func (r *run) reached(g *graph.Store, m *model) (to int64) {
	m.reached = make([]int64, m.n.Accounts())
	var did []byte
	for i := range m.reached {
		did = m.n.AppendDID(did[:0], i)
		c, _ := g.CursorOf(r.source, did)
		m.reached[i] = r.event(int64(c.Seq))
		to = max(to, m.reached[i])
	}
	return to
}
