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
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/identities"
	"skein.blue/internal/loglimit"
)

// A Manager fetches what is queued, and lists what there is.
type Manager struct {
	o         Options
	log       *slog.Logger
	seldom    loglimit.Limiter
	client    *http.Client
	directory *identity.CacheDirectory
	placer    *placer
	memory    *repo.Memory // of all Readers

	mu        sync.Mutex
	sched     *scheduler
	wake      chan struct{}
	gaps      chan struct{}
	parked    map[string]string   // DIDs that are not tried, and why: a Failure, or "" of inactive ones
	lists     map[string]*listing // by host
	list      *listJob            // under way
	comparing *comparison         // under way
	given     map[string]int64    // how many are parked, by why
	archive   *archive.Reader     // being read
	ended     map[string]string   // what has ended in this run, and how
	named     map[string]bool     // hosts that an operator named
	trouble   map[string]string   // hosts that are asked again, and why
	jobs      sync.WaitGroup
	running   context.Context //nolint:containedctx // that of Run, under which jobs are begun by calls

	fetched, records, bytes atomic.Int64
}

// New returns a Manager, which works once it runs.
func New(o Options) *Manager {
	o.defaults()
	m := &Manager{
		o: o, log: o.Logger, client: newClient(&o), placer: newPlacer(o.Store), sched: newScheduler(o.PerHost, o.Fetchers),
		wake: make(chan struct{}, 1), gaps: make(chan struct{}), parked: map[string]string{}, given: map[string]int64{}, lists: map[string]*listing{}, ended: map[string]string{}, named: map[string]bool{},
		memory: repo.NewMemory(o.Memory),
	}
	m.directory = identities.NewDirectory(o.PLC, m.client)
	for _, h := range o.Hosts {
		m.named[h] = true
	}
	m.sched.trusts = func(host string) bool { return m.o.TrustHosts || m.named[host] }
	return m
}

// SetStore sets the store, where it could not be there before the Manager.
func (m *Manager) SetStore(s *graph.Store) { m.o.Store, m.placer.store = s, s }

// Queued takes over what the graph has queued. It is graph.Options.Queued.
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
	m.directory = identities.NewDirectory(m.o.PLC, m.client)
}

// SetListening sets Options.Listening, before Run.
func (m *Manager) SetListening(since func() (time.Time, bool)) { m.o.Listening = since }

// SetLive sets Options.Live, before Run.
func (m *Manager) SetLive(isLive func() bool) { m.o.Live = isLive }

// Run works until ctx ends: it goes on with what was under way when the process last
// ended, and with what is queued. began, which may be nil, is called when more can be
// begun.
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
	slots := make(chan struct{}, m.o.Fetchers)
	resolvers := make(chan struct{}, max(m.o.Fetchers/4, 1))
	var busy sync.WaitGroup
	for ctx.Err() == nil {
		m.mu.Lock()
		now := time.Now()
		j, resolve, wait := m.sched.next(now, len(resolvers) < cap(resolvers))
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

// load reads the queue, and queues what is known to be missing and is not.
func (m *Manager) load(ctx context.Context) error {
	_, err := m.o.Store.ViewAcross(ctx, func(s *ask.View) error {
		return s.Resyncs(func(did string, row format.Resync) error {
			if !m.o.Store.Owns([]byte(did)) {
				return nil
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			switch row.State {
			case format.ResyncFailed, format.ResyncInactive:
				m.park(did, row.Failure)
			default:
				m.sched.put(did, row.Generation, row.Due, row.Tries, row.Host)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("backfill: reading the queue: %w", err)
	}
	back := m.o.Store.Backfill()
	var missing []string
	_, err = m.o.Store.ViewAcross(ctx, func(s *ask.View) error {
		missing = nil
		counts, err := s.Counts()
		partial := back.Whole() && back.Archive == ""
		if err != nil || counts.Desynchronized == 0 && (!partial || counts.Partial == 0) {
			return err
		}
		return s.Missing(partial, func(did string) error { missing = append(missing, did); return nil })
	})
	if err != nil {
		return fmt.Errorf("backfill: looking for what is missing: %w", err)
	}
	return m.Resync(ctx, "missed_before", missing...)
}

// park notes why a repo is not tried, "" if its account is not active. m.mu is held.
func (m *Manager) park(did, failure string) {
	m.unpark(did)
	m.parked[did] = failure
	m.given[failure]++
}

// unpark notes that a repo is tried again. m.mu is held.
func (m *Manager) unpark(did string) {
	failure, ok := m.parked[did]
	if !ok {
		return
	}
	delete(m.parked, did)
	if m.given[failure]--; m.given[failure] == 0 {
		delete(m.given, failure)
	}
}

// Resync queues repos to be fetched whole, whatever is known of them.
func (m *Manager) Resync(ctx context.Context, reason string, dids ...string) error {
	return m.resync(ctx, batch.Cause{Reason: reason}, dids)
}

// Believe queues repos to be fetched whole, and has what their hosts send put in place also
// where the stream has told of a newer state: an operator knows that they were put back.
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

// ErrBusy is returned where something of the kind is under way already.
var ErrBusy = errors.New("one is under way already")

// resume goes on with what was under way when the process ended.
func (m *Manager) resume(ctx context.Context) error {
	b := m.o.Store.Backfill()
	if b.Archive != "" {
		m.log.Info("going on with the archive", "archive", b.Archive)
		if err := m.beginArchive(ctx, b.Archive); err != nil {
			return err
		}
	}
	if len(b.Hosts) > 0 {
		job := &listJob{named: b.Named, hosts: b.Hosts, from: b.ListingFrom}
		if _, err := m.reserve(job); err != nil {
			return err
		}
		m.log.Info("going on with the lists of hosts", "hosts", len(b.Hosts))
		m.beginList(ctx, job)
	}
	return nil
}
