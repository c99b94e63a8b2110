package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"skein.blue/consumer"
)

// This file has the indexing part of a run, which may also kill and restart the relay.

// index consumes the stream until the run's events or time are over.
func (r *run) index(ctx context.Context, from int64) (err error) {
	events := int64(0)
	if r.o.Rate > 0 {
		events = int64(r.o.Rate * r.o.Duration.Seconds())
	}
	if r.o.Backfill > 0 && from > 0 {
		return fmt.Errorf("%w: %s already has events, and --backfill needs a new store", ErrOther, r.o.Store.Store)
	}
	from += r.o.Backfill
	if err := r.simulator(ctx, from, events); err != nil {
		return err
	}
	r.from = from
	defer func() { err = errors.Join(err, r.sim.Stop()) }()
	if r.o.Backfill > 0 { // again, now that the relay has an address
		if err := errors.Join(r.x.Close(ctx), r.open(ctx)); err != nil {
			return err
		}
	}
	cursor := from
	o := consumer.Options{
		Relay: "ws://" + r.sim.Address(), Source: r.source, Cursor: &cursor, UserAgent: "skein load",
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Watchdog: time.Minute,
		Committed: func(arrived time.Time, events int) { r.lags.add(time.Since(arrived), events) },
	}
	if r.part != nil {
		o.Part = r.part.Part
	}
	if events > 0 {
		last := from + events
		for last > from+1 && r.o.Faults.Hit(last) {
			last-- // may be unreadable, and then nobody learns its number
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
	endProfile, err := r.profile()
	if err != nil {
		return err
	}
	err = c.Run(stop)
	end := time.Now()
	err = errors.Join(err, endProfile())
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
	rep.Events = r.event(p.Applied) - r.first
	rep.Seconds = end.Sub(r.started).Seconds()
	rep.EventsPerSecond = float64(rep.Events) / rep.Seconds
	rep.MegabytesPerSecond = float64(p.Bytes) / rep.Seconds / 1e6
	rep.OpsIndexed = c.Ops()
	rep.Lag, rep.Behind = r.lags.quantiles(), r.behind.quantiles()
	rep.CPUSeconds = (cpu - r.cpu).Seconds()
	rep.PeakRSS = peak
	rep.Simulator = SimulatorUsage{simCPU.Seconds(), simPeak}
	return nil
}

// profile starts a CPU profile, if one was asked for.
func (r *run) profile() (end func() error, err error) {
	if r.o.Profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(r.o.Profile)
	if err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

// watch starts the clock at the first message, logs the progress every few seconds, and
// ends a load without a rate.
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
	if r.part != nil {
		r.awaitPart(ctx)
		from = r.event(c.Progress().Applied)
	}
	r.first = from
	r.startClock()
	const tick = 100 * time.Millisecond
	ticker.Reset(tick)
	logged, before := time.Now(), from
	events0, quiet := int64(0), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p := c.Progress()
		if p.Outdated {
			r.fail(fmt.Errorf("the indexer fell too far behind at seq %d: the relay keeps only %d events; use a lower --rate", p.Applied, maxWindow), end)
			return
		}
		if p.Events == events0 {
			quiet++
		} else {
			events0, quiet = p.Events, 0
		}
		if quiet > int((r.o.Faults.Stall+giveUpAfter)/tick) {
			r.fail(fmt.Errorf("no message from the relay for %v at seq %d; did it crash?", r.o.Faults.Stall+giveUpAfter, p.Applied), end)
			return
		}
		// Even without new events, because awaited ones may arrive between two ticks.
		if r.o.Rate > 0 && !p.Time.IsZero() {
			r.behind.add(time.Since(p.Time), 1)
		}
		passed := time.Since(r.started)
		if d := time.Since(logged); d >= 5*time.Second {
			at := r.event(p.Applied)
			line := fmt.Sprintf("%3.0f s: %d events, %.0f/s now, lag p99 %.0f ms", passed.Seconds(), at-from, float64(at-before)/d.Seconds(), r.lags.quantiles().P99)
			if r.o.Rate > 0 {
				line += fmt.Sprintf(", %.1f s behind", time.Since(p.Time).Seconds())
			}
			_, peak := usage()
			r.say("%s, peak memory %d MiB", line, peak>>20)
			logged, before = time.Now(), at
		}
		if events == 0 && passed >= r.o.Duration {
			end()
			return
		}
	}
}

// giveUpAfter is how long a run waits for a silent relay.
const giveUpAfter = 30 * time.Second

// kill kills the relay in the middle of the run, and restarts it where it would be, until
// the whole load is over.
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
	// Wait until everything received is handled: a relay that started earlier in the stream
	// would answer FutureCursor.
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
	r.say("relay killed; restarting at event %d", at)
	sim, err := r.o.Simulator(whole, SimulatorOptions{Options: r.relayOptions(at, c.Progress().Time, from+events-at), Address: address})
	if err != nil {
		r.fail(fmt.Errorf("restarting the relay: %w", err), end)
		return
	}
	r.mu.Lock()
	r.sim, r.simCPU, r.simPeak, r.simBase = sim, cpu, peak, 0
	r.mu.Unlock()
}
