// Package load is the load test: it runs a simulated relay in a separate process and the
// indexer as users run it, and compares the index with a model of the network's events. It
// measures; it sets no thresholds.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// Options say what to run.
type Options struct {
	Store    app.StoreOptions
	Network  network.Options
	Rate     float64 // events per second; 0: as fast as possible
	Duration time.Duration
	// Backfill is how many events have happened when the index, a new store, starts: it
	// fetches all repos during the run. 0: none.
	Backfill int64
	// Around is around how many accounts the index holds a part of the network: the most active ones. It fetches the part's repos,
	// and then the clock starts. 0: it holds all of it.
	Around  int
	Hosts   int  // with Backfill: hosts that export repos
	Healthy bool // no host misbehaves
	Faults  relay.Faults
	// Simulator starts a relay in another process.
	Simulator func(ctx context.Context, o SimulatorOptions) (Simulator, error)
	// Archive starts the archive of the network's history in another process, which listens on address, or on a
	// free port if that is empty.
	Archive func(ctx context.Context, address string, o network.Options) (Simulator, error)
	// Kill kills the relay in the middle, and restarts it.
	Kill bool
	// Profile is a file for a CPU profile while the clock runs; "": none.
	Profile string
	// Inspect, if set, is called with the index once the clock has stopped.
	Inspect func(*app.Index)
	// Stderr receives progress lines.
	Stderr io.Writer
}

// SimulatorOptions describe a relay to start.
type SimulatorOptions struct {
	relay.Options

	Hosts   int    // that export repos; some misbehave
	Healthy bool   // no host misbehaves
	Address string // to listen on; "": any
}

// A Simulator is a relay in another process.
type Simulator interface {
	// Address returns its host and port.
	Address() string
	// Usage returns its CPU time, and its peak memory in bytes.
	Usage() (cpu time.Duration, peak int64)
	// Kill ends it like SIGKILL, Stop cleanly.
	Kill()
	Stop() error
}

// ErrOther means that a store belongs to another network or source.
var ErrOther = errors.New("the store does not belong to this load")

// sourcePrefix begins the source name of every load.
const sourcePrefix = "load:"

func (o *Options) source() string {
	s := fmt.Sprintf("%sseed=%d,accounts=%d", sourcePrefix, o.Network.Seed, network.New(o.Network).Accounts())
	if o.Network.History > 0 {
		s += fmt.Sprintf(",history=%d", o.Network.History)
	}
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
	from    int64     // the last event before the run
	first   int64     // the last event before the clock started
	started time.Time // when the clock started
	cpu     time.Duration
	part    *backfill.Around // nil: the whole network

	mu      sync.Mutex // guards the fields below
	sim     Simulator
	simBase time.Duration // its CPU time when the clock started
	simCPU  time.Duration // CPU time of killed relays since then
	simPeak int64
	failed  error // why not to wait for the relay any longer
}

// Run runs a load, and compares the index with the model. It returns some of the differences
// that it finds.
func Run(ctx context.Context, o Options) (report Report, problems []string, err error) {
	r := &run{o: o, source: o.source()}
	if err := r.history(ctx); err != nil {
		return r.report, nil, err
	}
	if err := r.open(ctx); err != nil {
		return r.report, nil, err
	}
	cursor, _ := r.x.Graph.Cursor(r.source)
	err = r.index(ctx, r.event(int64(cursor.Seq)))
	if err == nil {
		err = r.settle(ctx)
	}
	if err := errors.Join(err, r.x.Close(ctx)); err != nil {
		return r.report, nil, err
	}
	if r.part != nil || len(r.o.Store.Kinds) > 0 { // there is no model of a part, or of posts; TestAround of cmd/skein and TestPosts of query compare them
		return r.report, nil, nil
	}
	problems, err = r.verify(ctx)
	r.report.Verified = err == nil && len(problems) == 0
	return r.report, problems, err
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.o.Stderr, "load: "+format+"\n", args...) }

// open opens a store: a new one, or one that a load of the same network made.
func (r *run) open(ctx context.Context) (err error) {
	app.LimitMemory(r.o.Store)
	so := r.o.Store
	so.Create = true
	if r.o.Backfill > 0 && r.sim != nil {
		address := "http://" + r.sim.Address()
		so.Backfill = &backfill.Options{
			Relay: address, PLC: address, AllowPrivateHosts: true, Patience: backfill.Patience{Tries: 15, HostTries: 100, Retry: 200 * time.Millisecond, HostRetry: 50 * time.Millisecond},
			Timeouts: backfill.Timeouts{HeaderTimeout: 3 * time.Second, IdleTimeout: 3 * time.Second}, Fetchers: 16,
		}
	}
	if so.Backfill != nil && r.o.Around > 0 {
		r.part = aroundOf(r.o.Network, r.o.Around)
		so.Backfill.Around = r.part
	}
	if r.x, err = app.OpenIndex(ctx, so); err != nil {
		return err
	}
	if r.part != nil {
		return r.x.Backfill.Enclose(ctx)
	}
	records := int64(0) // of the archive that was read
	for _, c := range r.x.Graph.Cursors() {
		if r.o.Network.History > 0 && isArchive(c.Source) {
			records = max(records, int64(c.Seq))
			continue
		}
		if r.o.Faults.Jump > 0 {
			return errors.Join(fmt.Errorf("%w: %s already has events, and a jump needs a new store", ErrOther, r.o.Store.Store), r.x.Close(ctx))
		}
		if c.Source != r.source {
			other := fmt.Errorf("%w: %s has %s up to seq %d, not %s; use another --store, or its --seed and --accounts",
				ErrOther, r.o.Store.Store, c.Source, c.Seq, r.source)
			return errors.Join(other, r.x.Close(ctx))
		}
	}
	counts, err := r.counts(ctx)
	if err != nil {
		return errors.Join(err, r.x.Close(ctx))
	}
	if r.o.Network.History > 0 {
		if has := network.New(r.o.Network).Records(); records != has {
			return errors.Join(fmt.Errorf("%w: %s has read %d of the %d records of the network's history, and has other events, too; use a new --store",
				ErrOther, r.o.Store.Store, records, has), r.x.Close(ctx))
		}
		return nil
	}
	if _, has := r.x.Graph.Cursor(r.source); !has && counts.Accounts > 0 {
		return errors.Join(fmt.Errorf("%w: %s has %d accounts without a source", ErrOther, r.o.Store.Store, counts.Accounts), r.x.Close(ctx))
	}
	return nil
}

// isArchive reports whether a source is an archive.
func isArchive(source string) bool { return strings.HasPrefix(source, "archive ") }

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

// erase finishes the erasing of deleted accounts.
func (r *run) erase(ctx context.Context) error {
	for r.x.Graph.Erasing() {
		if err := r.x.Graph.EraseSlice(ctx); err != nil {
			return err
		}
	}
	return nil
}

// event returns the last event that a cursor covers. A jump is possible only in a store that
// this run created.
func (r *run) event(seq int64) int64 { return r.o.Faults.Event(r.from, r.o.Rate, seq) }

// simulator starts the relay at an event.
func (r *run) simulator(ctx context.Context, from, events int64) (err error) {
	window := relay.DefaultWindow
	if r.o.Rate > 0 { // more than a minute's worth
		window = max(window, int(r.o.Rate*(60+r.o.Faults.Stall.Seconds()*1.2)))
	}
	applied, _ := r.x.Graph.Cursor(r.source)
	so := SimulatorOptions{Options: r.relayOptions(from, applied.Time, events), Hosts: r.o.Hosts, Healthy: r.o.Healthy}
	so.Window = min(window, maxWindow)
	sim, err := r.o.Simulator(ctx, so)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.sim = sim
	r.mu.Unlock()
	return nil
}

// relayOptions describe a relay that continues after an event of a time.
func (r *run) relayOptions(from int64, at time.Time, events int64) relay.Options {
	return relay.Options{
		Network: r.o.Network, From: from, FromTime: at, Events: events, Rate: r.o.Rate, Window: relay.DefaultWindow, Faults: r.o.Faults, Hold: true,
	}
}

// maxWindow bounds the events that the relay keeps: 1.5 GB.
const maxWindow = 16 << 20

// startClock records the usage so far.
func (r *run) startClock() {
	r.started = time.Now()
	r.cpu, _ = usage()
	r.mu.Lock()
	r.simBase, _ = r.sim.Usage()
	r.mu.Unlock()
}

// relayUsage returns the CPU time of the relays since startClock, and the largest peak memory
// of one.
func (r *run) relayUsage() (cpu time.Duration, peak int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cpu, peak = r.sim.Usage()
	return r.simCPU + cpu - r.simBase, max(peak, r.simPeak)
}

// fail ends the run with an error.
func (r *run) fail(err error, end func()) {
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
	if p, ok := r.x.KV.(*pebblekv.Store); ok {
		r.say("compacting")
		if err := p.Compact(ctx); err != nil {
			return err
		}
	}
	if err := r.x.Close(ctx); err != nil { // moves everything from logs into tables
		return err
	}
	x, err := app.OpenIndex(ctx, r.o.Store)
	if err != nil {
		return err // r.x is closed, and may be closed again
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

// verify reopens the store and compares it with the model.
func (r *run) verify(ctx context.Context) (problems []string, err error) {
	limit := debug.SetMemoryLimit(math.MaxInt64) // the model does not belong to the indexer
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
	if err := m.addHistory(ctx, r.o.Network); err != nil {
		return nil, err
	}
	if err := m.run(ctx, to); err != nil {
		return nil, err
	}
	problems, sets, err := verify(ctx, x, m)
	r.say("%d sets compared, %d differences", sets, len(problems))
	return problems, err
}

// reached makes the model stop where the index did, in each account's partition, and returns
// the last event that the index has applied.
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
