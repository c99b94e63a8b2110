package backfill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/identities/plc"
	"skein.blue/internal/loglimit"
)

// A Manager fetches queued repos, and reads lists of repos and archives.
type Manager struct {
	o         Options
	log       *slog.Logger
	seldom    loglimit.Limiter
	client    *http.Client
	directory identity.Directory
	placer    *placer
	memory    *repo.Memory // shared by all Readers

	mu        sync.Mutex // guards the fields below
	sched     *scheduler
	wake      chan struct{}
	gaps      chan struct{}
	parked    map[string]string   // DIDs that are not retried, with the reason: a Failure, or "" for inactive accounts
	lists     map[string]*listing // by host
	list      *listJob            // the running job
	comparing *comparison         // the running one
	parkedBy  map[string]int64    // number of parked repos, by reason
	archive   *archive.Reader     // the one being read
	ended     map[string]string   // jobs that ended in this run, with their outcome
	named     map[string]bool     // hosts that an operator named
	trouble   map[string]string   // hosts whose requests are being retried, with the reason
	jobs      sync.WaitGroup
	running   context.Context //nolint:containedctx // of Run; jobs that calls start run under it

	fetched, records, bytes atomic.Int64

	audits struct{ repos, records, differences atomic.Int64 }
}

// New returns a Manager. It does nothing until Run.
func New(o Options) *Manager {
	o.defaults()
	m := &Manager{
		o: o, log: o.Logger, client: newClient(&o), placer: newPlacer(o.Store), sched: newScheduler(o.PerHost, o.Fetchers),
		wake: make(chan struct{}, 1), gaps: make(chan struct{}), parked: map[string]string{}, parkedBy: map[string]int64{}, lists: map[string]*listing{}, ended: map[string]string{}, named: map[string]bool{},
		memory: repo.NewMemory(o.Memory),
	}
	m.directory = m.documents()
	for _, h := range o.Hosts {
		m.named[h] = true
	}
	m.sched.trusts = func(host string) bool { return m.o.TrustHosts || m.named[host] }
	return m
}

// documents returns the source of DID documents.
func (m *Manager) documents() identity.Directory {
	cached := m.o.LookUps.NewDirectory(m.o.PLC, m.client)
	if m.o.Mirror == nil {
		return cached
	}
	return plc.Directory{Directory: cached, Mirror: m.o.Mirror}
}

// SetStore sets the store if it was not known to New.
func (m *Manager) SetStore(s *graph.Store) { m.o.Store, m.placer.store = s, s }

// Queued takes over the repos that the graph has queued. It is graph.Options.Queued.
func (m *Manager) Queued(all []batch.Queued) {
	m.mu.Lock()
	for i := range all {
		m.unpark(all[i].DID)
		m.sched.put(all[i].DID, all[i].Row.Generation, all[i].Row.Due, all[i].Row.Tries, all[i].Row.Host)
	}
	m.mu.Unlock()
	m.poke()
}

func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// SetNetwork sets Options.Relay and Options.PLC, before Run.
func (m *Manager) SetNetwork(relay, plc string) {
	m.o.Relay, m.o.PLC = relay, plc
	m.o.defaults()
	m.client = newClient(&m.o)
	m.directory = m.documents()
}

// SetListening sets Options.Listening, before Run.
func (m *Manager) SetListening(since func() (time.Time, bool)) { m.o.Listening = since }

// SetLive sets Options.Live, before Run.
func (m *Manager) SetLive(isLive func() bool) { m.o.Live = isLive }

// Run works until ctx ends: it continues the jobs that the last process left, and works on
// the queue. It calls began, which may be nil, once other jobs can start.
func (m *Manager) Run(ctx context.Context, began func()) error {
	if err := m.load(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	m.running = ctx
	m.mu.Unlock()
	if err := m.resume(ctx); err != nil {
		return err
	}
	if began != nil {
		began()
	}
	m.jobs.Go(func() { m.watchHoles(ctx) })
	if m.o.Audit > 0 {
		m.jobs.Go(func() { m.audit(ctx) })
	}
	slots := make(chan struct{}, m.o.Fetchers)
	resolvers := make(chan struct{}, max(m.o.Fetchers/4, 1))
	var busy sync.WaitGroup
	for ctx.Err() == nil {
		m.mu.Lock()
		now := time.Now()
		m.sched.setFull(len(slots) == cap(slots), now)
		m.sched.share(now, m.o.IdleTimeout)
		j, resolve, wait := m.sched.next(now, len(resolvers) < cap(resolvers))
		if m.sched.isFull && (wait <= 0 || wait > m.o.IdleTimeout) {
			wait = m.o.IdleTimeout
		}
		m.mu.Unlock()
		if j == nil {
			if wait <= 0 || wait > time.Minute {
				wait = time.Minute
			}
			select {
			case <-time.After(wait):
			case <-m.wake:
			case <-ctx.Done():
			}
			continue
		}
		room, work := slots, m.fetchOne
		if resolve {
			room, work = resolvers, m.resolveOne
		}
		select {
		case room <- struct{}{}:
			busy.Go(func() {
				defer func() { <-room; m.poke() }()
				work(ctx, j)
			})
		case <-ctx.Done():
		}
	}
	busy.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
	m.placer.close(closing)
	cancel()
	m.jobs.Wait()
	m.mu.Lock()
	m.running = nil
	m.mu.Unlock()
	return nil
}

// load reads the queue, and queues repos that are known to miss records but are not in it.
func (m *Manager) load(ctx context.Context) error {
	_, err := m.o.Store.ViewAcross(ctx, func(s *graph.View) error {
		return s.Resyncs(func(did string, row graph.Resync) error {
			if !m.o.Store.Owns([]byte(did)) {
				return nil
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			switch {
			case row.State == graph.ResyncWaiting:
				m.sched.put(did, row.Generation, row.Due, row.Tries, row.Host)
			case m.sched.jobs[did] == nil: // otherwise it was queued since the row was read
				m.park(did, row.Failure)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("backfill: reading the queue: %w", err)
	}
	back := m.o.Store.Backfill()
	var missing []string
	_, err = m.o.Store.ViewAcross(ctx, func(s *graph.View) error {
		missing = nil
		counts, err := s.Counts()
		partial := back.Whole() && back.Archive == ""
		if err != nil || counts.Desynchronized == 0 && (!partial || counts.Partial == 0) {
			return err
		}
		return s.Missing(partial, func(did string) error { missing = append(missing, did); return nil })
	})
	if err != nil {
		return fmt.Errorf("backfill: looking for incomplete repos: %w", err)
	}
	return m.Resync(ctx, "missed_before", missing...)
}

// park notes why a repo is not retried, "" if its account is inactive. m.mu is held.
func (m *Manager) park(did, failure string) {
	m.unpark(did)
	m.parked[did] = failure
	m.parkedBy[failure]++
}

// unpark notes that a repo is retried. m.mu is held.
func (m *Manager) unpark(did string) {
	failure, ok := m.parked[did]
	if !ok {
		return
	}
	delete(m.parked, did)
	if m.parkedBy[failure]--; m.parkedBy[failure] == 0 {
		delete(m.parkedBy, failure)
	}
}

// Resync queues repos for a fetch, whatever is known of them.
func (m *Manager) Resync(ctx context.Context, reason string, dids ...string) error {
	return m.resync(ctx, batch.Cause{Reason: reason}, dids)
}

// Believe queues repos for a fetch, and accepts older states than the stream has brought,
// because an operator knows that the repos were restored.
func (m *Manager) Believe(ctx context.Context, dids ...string) error {
	return m.resync(ctx, batch.Cause{Reason: "operator", Trust: true}, dids)
}

func (m *Manager) resync(ctx context.Context, c batch.Cause, dids []string) error {
	var b batch.Batch
	for len(dids) > 0 {
		n := min(len(dids), 1000)
		for _, did := range dids[:n] {
			b.AddResync([]byte(did), c)
		}
		if err := m.o.Store.Apply(ctx, "", &b); err != nil {
			return fmt.Errorf("backfill: queueing repos: %w", err)
		}
		b.Reset()
		dids = dids[n:]
	}
	return nil
}

// ErrBusy means that a job of the same type is already running.
var ErrBusy = errors.New("already running")

// resume continues the jobs that the last process left.
func (m *Manager) resume(ctx context.Context) error {
	b := m.o.Store.Backfill()
	switch {
	case b.Archive != "" && m.o.Verifier != nil:
		m.log.Warn("not continuing the archive", "archive", b.Archive, "reason", errUnsigned.Error())
	case b.Archive != "":
		m.log.Info("continuing the archive", "archive", b.Archive)
		if err := m.beginArchive(ctx, b.Archive); err != nil {
			return err
		}
	}
	if len(b.Hosts) > 0 {
		job := &listJob{named: b.Named, hosts: b.Hosts, from: b.ListingFrom}
		if _, err := m.reserve(job); err != nil {
			return err
		}
		m.log.Info("continuing the lists of repos", "hosts", len(b.Hosts))
		m.beginList(ctx, job)
	}
	return nil
}
