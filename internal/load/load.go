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
	"os"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"time"

	"skein/consumer"
	"skein/consumer/backfill"
	"skein/graph"
	"skein/internal/app"
	"skein/internal/kv/pebblekv"
	"skein/internal/network"
	"skein/internal/relay"
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
	to, _ := r.x.Graph.Cursor(r.source)
	if err == nil {
		err = r.settle(ctx)
	}
	if err := errors.Join(err, r.x.Close(ctx)); err != nil {
		return r.report, nil, err
	}
	problems, err = r.verify(ctx, r.event(int64(to.Seq)))
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

func (r *run) counts(ctx context.Context) (c graph.Counts, err error) {
	err = r.x.Graph.View(ctx, func(s *graph.Snapshot) error { c, err = s.Counts(); return err })
	return c, err
}

func edges(c graph.Counts) (n int64) {
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

// index consumes for as long as it is to.
func (r *run) index(ctx context.Context, from int64) (err error) {
	events := int64(0)
	if r.o.Rate > 0 {
		events = int64(r.o.Rate * r.o.Duration.Seconds())
	}
	if r.o.Backfill > 0 && from > 0 {
		return fmt.Errorf("%w: %s holds events already, and the past is fetched into a new one", ErrOther, r.o.Store.Store)
	}
	from += r.o.Backfill
	if err := r.simulator(ctx, from, events); err != nil {
		return err
	}
	r.from = from
	defer func() { err = errors.Join(err, r.sim.Stop()) }()
	cursor := from
	o := consumer.Options{
		Relay: "ws://" + r.sim.Address(), Source: r.source, Cursor: &cursor, UserAgent: "skein load",
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Watchdog: time.Minute,
		Committed: func(arrived time.Time, events int) { r.lags.add(time.Since(arrived), events) },
	}
	if events > 0 {
		last := from + events
		for last > from+1 && r.o.Faults.Hit(last) {
			last-- // it may be damaged beyond reading, and then nobody learns its number
		}
		o.Until = r.o.Faults.Seq(from, r.o.Rate, last)
	}
	c, err := r.x.Consumer(o)
	if err != nil {
		return err
	}
	stop, done := context.WithCancel(ctx)
	defer done()
	ended := r.fetchPast(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { r.watch(stop, c, from, events, done) })
	if r.o.Kill {
		watching.Go(func() { r.kill(stop, ctx, c, from, events, done) })
	}
	if r.o.Profile != "" {
		f, err := os.Create(r.o.Profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	err = c.Run(stop)
	end := time.Now()
	pprof.StopCPUProfile()
	p := c.Progress()
	cpu, peak := usage()
	done()
	watching.Wait()
	if perr := ended(); err == nil && ctx.Err() == nil {
		err = perr
	}
	simCPU, simPeak := r.relayUsage()
	if r.failed != nil {
		return r.failed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped at seq %d", p.Applied)
	}
	if err != nil {
		return err
	}
	if r.o.Inspect != nil {
		r.o.Inspect(r.x)
	}
	if r.started.IsZero() {
		return errors.New("the relay sent nothing")
	}
	rep := &r.report
	rep.RateOffered = r.o.Rate
	rep.Events = r.event(p.Applied) - from
	rep.Seconds = end.Sub(r.started).Seconds()
	rep.EventsPerSecond = float64(rep.Events) / rep.Seconds
	rep.MegabytesPerSecond = float64(p.Bytes) / rep.Seconds / 1e6
	t := r.x.Graph.Timing()
	r.say("the writer: intern %v, read %v, graph %v, commit %v of %v", t.Intern.Round(time.Millisecond), t.Read.Round(time.Millisecond),
		t.Graph.Round(time.Millisecond), t.Commit.Round(time.Millisecond), end.Sub(r.started).Round(time.Millisecond))
	rep.OpsIndexed = c.Ops()
	rep.Lag, rep.Behind = r.lags.quantiles(), r.behind.quantiles()
	rep.CPUSeconds = (cpu - r.cpu).Seconds()
	rep.PeakRSS = peak
	rep.Simulator = SimulatorUsage{simCPU.Seconds(), simPeak}
	return nil
}

// watch starts the clock at the first message, says every few seconds how far it
// is, and ends a load that has no rate.
func (r *run) watch(ctx context.Context, c *consumer.Consumer, from, events int64, end func()) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for c.Progress().Events == 0 {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	r.startClock()
	const tick = 100 * time.Millisecond
	ticker.Reset(tick)
	said, before := time.Now(), from
	events0, quiet := int64(0), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p := c.Progress()
		if p.Outdated {
			r.give(fmt.Errorf("the indexer fell too far behind: the relay, which keeps %d events, no longer has what comes next, at seq %d; offer less (--rate)", maxWindow, p.Applied), end)
			return
		}
		if p.Events == events0 {
			quiet++
		} else {
			events0, quiet = p.Events, 0
		}
		if quiet > int((r.o.Faults.Stall+giveUpAfter)/tick) {
			r.give(fmt.Errorf("nothing came from the relay for %v, at seq %d; did it die?", r.o.Faults.Stall+giveUpAfter, p.Applied), end)
			return
		}
		// Also where nothing new came: what was waited for may then come between two ticks.
		if r.o.Rate > 0 && !p.Time.IsZero() {
			r.behind.add(time.Since(p.Time), 1)
		}
		passed := time.Since(r.started)
		if d := time.Since(said); d >= 5*time.Second {
			at := r.event(p.Applied)
			line := fmt.Sprintf("%3.0f s: %d events, %.0f/s now, lag p99 %.0f ms", passed.Seconds(), at-from, float64(at-before)/d.Seconds(), r.lags.quantiles().P99)
			if r.o.Rate > 0 {
				line += fmt.Sprintf(", %.1f s behind", time.Since(p.Time).Seconds())
			}
			_, peak := usage()
			r.say("%s, peak memory %d MiB", line, peak>>20)
			said, before = time.Now(), at
		}
		if events == 0 && passed >= r.o.Duration {
			end()
			return
		}
	}
}

// giveUpAfter is how long a run waits for a relay that says nothing.
const giveUpAfter = 30 * time.Second

// kill ends the relay in the middle, and starts it where it would be, for as long
// as the whole load lasts.
func (r *run) kill(ctx, whole context.Context, c *consumer.Consumer, from, events int64, end func()) {
	for r.event(c.Progress().Seq) < from+events/2 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	address := r.sim.Address()
	cpu, peak := r.relayUsage()
	r.sim.Kill()
	// What had arrived is taken in: a relay that began before it would be told of a
	// cursor in its future.
	at, last := r.event(c.Progress().Seq), int64(-1)
	for at != last {
		last = at
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
		at = r.event(c.Progress().Seq)
	}
	r.say("the relay was killed; it starts again at event %d", at)
	sim, err := r.o.Simulator(whole, SimulatorOptions{
		Network: r.o.Network, From: at, Events: from + events - at, Rate: r.o.Rate, Window: relay.DefaultWindow, Faults: r.o.Faults,
		Address: address,
	})
	if err != nil {
		r.give(fmt.Errorf("starting the relay again: %w", err), end)
		return
	}
	r.mu.Lock()
	r.sim, r.simCPU, r.simPeak, r.simBase = sim, cpu, peak, 0
	r.mu.Unlock()
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
func (r *run) verify(ctx context.Context, to int64) (problems []string, err error) {
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
	r.say("comparing with the model: %d events, one account and one subject in %d", to, every)
	m := newModel(r.o.Network, r.o.Faults, every)
	m.past = r.o.Backfill > 0
	if err := m.run(ctx, to); err != nil {
		return nil, err
	}
	problems, sets, err := verify(ctx, x, m)
	r.say("%d sets compared, %d differences", sets, len(problems))
	return problems, err
}
