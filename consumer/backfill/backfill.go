package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/intern/dict"
	"skein.blue/internal/outward"
)

// A Manager fetches queued repos, and reads lists of repos and archives. It consists of parts that
// share the Options, the Queue and the jobs.
type Manager struct {
	o        *Options
	queue    *Queue
	jobs     *jobs
	client   *client
	fetcher  *fetcher
	lister   *lister
	comparer *comparer
	archiver *archiver
	auditor  *auditor
	grower   *grower // nil unless the store holds a part of the network
}

// New returns a Manager of a store whose Options.Queued is Queue.Add. It has the Options of the
// Queue, and does nothing until Run.
func New(store *graph.Store, q *Queue) *Manager {
	o := q.o
	o.Store = store
	m := &Manager{o: &o, queue: q, jobs: &jobs{busy: map[string]bool{}, ended: map[string]string{}}, client: newClient(&o)}
	m.fetcher = &fetcher{o: &o, queue: q, client: m.client, jobs: m.jobs, placer: &placer{store: store}, memory: repo.NewMemory(o.Memory)}
	if o.Around != nil {
		o.CompareEvery = 0 // the relay's list has forty million repos
		m.grower = &grower{client: m.client, o: &o, queue: q}
	}
	m.comparer = &comparer{o: &o, queue: q, client: m.client, jobs: m.jobs, grower: m.grower}
	m.lister = &lister{o: &o, queue: q, client: m.client, jobs: m.jobs, comparer: m.comparer, lists: map[string]*listing{}}
	m.archiver = &archiver{o: &o, jobs: m.jobs, fetcher: m.fetcher}
	m.auditor = &auditor{o: &o, fetcher: m.fetcher}
	return m
}

// relistEvery is how often to ask the hosts again whose lists could not be read.
const relistEvery = time.Hour

// Enclose makes the store hold Options.Around, if that is set. Call it before Run, and before the stream is read.
func (m *Manager) Enclose(ctx context.Context) error {
	if m.grower == nil {
		return nil
	}
	accounts := int64(0)
	err := m.o.Store.View(ctx, func(s *graph.View) error { n, err := s.Counts(); accounts = n.Accounts; return err })
	if err == nil && accounts > 0 && m.o.Store.Backfill().Around.Hops == 0 {
		err = ErrAround
	}
	if err != nil {
		return err
	}
	return m.grower.enclose(ctx)
}

// Run works until ctx ends: it continues the jobs that the last process left, and works on
// the queue. It calls began, which may be nil, once other jobs can start.
func (m *Manager) Run(ctx context.Context, began func()) error {
	again, err := m.queue.load(ctx, m.o.Store)
	if err != nil {
		return err
	}
	if err := m.o.resync(ctx, batch.Cause{Reason: "restart"}, again...); err != nil {
		return err
	}
	m.jobs.run(ctx)
	if err := m.resume(ctx); err != nil && !errors.Is(err, ErrBusy) { // an operator was first
		return err
	}
	if began != nil {
		began()
	}
	m.jobs.wg.Go(func() {
		for err := m.queueMissing(ctx); err != nil && ctx.Err() == nil; err = m.queueMissing(ctx) {
			m.o.Logger.Error("queueing incomplete repos failed; trying again in a minute", "error", err)
			_ = outward.Wait(ctx, time.Minute)
		}
	})
	m.jobs.wg.Go(func() { m.comparer.watchHoles(ctx) })
	m.jobs.wg.Go(func() {
		for outward.Wait(ctx, relistEvery) == nil {
			if len(m.o.Store.Backfill().Roster.Unlisted) > 0 {
				_ = m.Hosts(ctx) // it is running already, or fails again in an hour
			}
		}
	})
	if m.grower != nil {
		m.jobs.wg.Go(func() { m.grower.run(ctx) })
	}
	if m.o.Audit > 0 {
		m.jobs.wg.Go(func() { m.auditor.run(ctx) })
	}
	slots := make(chan struct{}, m.o.Fetchers)
	var resolvers [methods]chan struct{}
	for i := range resolvers {
		resolvers[i] = make(chan struct{}, max(m.o.Fetchers/(4<<i), 1))
	}
	var busy sync.WaitGroup
	for ctx.Err() == nil {
		var mayResolve [methods]bool
		for i, r := range resolvers {
			mayResolve[i] = len(r) < cap(r)
		}
		j, resolve, wait := m.queue.next(len(slots) == cap(slots), mayResolve)
		if j == nil {
			select {
			case <-time.After(wait):
			case <-m.queue.wake:
			case <-ctx.Done():
			}
			continue
		}
		room, work := slots, m.fetcher.fetch
		if resolve {
			room, work = resolvers[methodOf(j.did)], m.fetcher.resolve
		}
		select {
		case room <- struct{}{}:
			busy.Go(func() {
				defer func() { <-room; m.queue.poke() }()
				work(ctx, j)
			})
		case <-ctx.Done():
		}
	}
	busy.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Second)
	m.fetcher.placer.flush(closing)
	m.fetcher.placer.wait.Wait()
	cancel()
	m.jobs.run(ctx) // no job is reserved any more
	m.jobs.wg.Wait()
	return nil
}

// queueMissing queues repos that are known to miss records but are not in the queue.
func (m *Manager) queueMissing(ctx context.Context) error {
	back := m.o.Store.Backfill()
	if back.Around.Hops > 0 {
		return nil // the grower queues those of the part
	}
	partial, lacks := back.Roster.Known() && back.Archive == "", false
	err := m.o.Store.View(ctx, func(s *graph.View) error {
		c, err := s.Counts()
		lacks = c.Desynchronized > 0 || partial && c.Partial > 0
		return err
	})
	if err == nil && lacks {
		_, err = m.queue.addAccounts(ctx, m.o, dict.None, batch.Cause{Reason: "missed_before"}, func(_ dict.ID, st *graph.RepoState) bool {
			return !st.Has(graph.FlagResync) && (st.Has(graph.FlagDesync|graph.FlagReturned) || partial && st.Has(graph.FlagPartial))
		}, nil)
	}
	return err
}

// resume continues the jobs that the last process left.
func (m *Manager) resume(ctx context.Context) error {
	b := m.o.Store.Backfill()
	if b.Archive != "" {
		m.o.Logger.Info("continuing the archive", "archive", b.Archive)
		if err := m.Archive(ctx, b.Archive); errors.Is(err, errUnsigned) {
			m.o.Logger.Warn("not continuing the archive", "archive", b.Archive, "reason", err.Error())
		} else if err != nil && !errors.Is(err, ErrBusy) {
			return err
		}
	}
	if len(b.Hosts) > 0 {
		if _, err := m.jobs.reserve(jobRepos); err != nil {
			return err
		}
		m.o.Logger.Info("continuing the lists of repos", "hosts", len(b.Hosts))
		m.lister.begin(ctx, &listJob{named: b.Named, hosts: b.Hosts, from: b.ListingFrom, holes: b.ListingHoles})
	}
	return nil
}

// Resync queues repos for a fetch, whatever is known of them. All must be in partitions of this process and, if the store holds a part
// of the network, of its accounts.
func (m *Manager) Resync(ctx context.Context, c batch.Cause, dids ...string) error {
	for _, did := range dids { // repos of other accounts would become out of date
		if m.o.Store.Backfill().Around.Hops > 0 && (m.o.Around == nil || !m.o.Around.Part.Has([]byte(did))) {
			return fmt.Errorf("%s is not in the part of the network that this index holds (--around)", did)
		}
		if !m.o.Store.Owns([]byte(did)) {
			return fmt.Errorf("%s is in the partition of another writer; ask that one (--admin)", did)
		}
	}
	return m.o.resync(ctx, c, dids...)
}

// Hosts starts to fetch all repos of hosts, or of the relay's hosts if none is named.
func (m *Manager) Hosts(ctx context.Context, hosts ...string) error {
	if len(hosts) == 0 && m.o.Relay == "" {
		return errors.New("no relay to list the hosts; give --relay or --host")
	}
	if m.o.Store.Backfill().Around.Hops > 0 {
		return errPart
	}
	running, err := m.jobs.reserve(jobRepos)
	if err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(running, stop)() // Run waits for this
	job, err := m.lister.job(asking, hosts)
	if err != nil {
		m.jobs.end(jobRepos, "")
		return cmp.Or(context.Cause(running), err)
	}
	m.lister.begin(running, job)
	return nil
}

// Archive starts to read an archive.
func (m *Manager) Archive(ctx context.Context, address string) error {
	if m.o.Store.Backfill().Around.Hops > 0 {
		return errPart
	}
	return m.archiver.start(ctx, address)
}

// Audits counts what the audits of this process have compared so far.
type Audits struct {
	Repos, Records int64
	// Differences is the number of records that the index and a host did not have alike.
	Differences int64
}

// Audits returns the counts; ok is false if there are no audits.
func (m *Manager) Audits() (a Audits, ok bool) {
	c := &m.auditor.counts
	return Audits{c.repos.Load(), c.records.Load(), c.differences.Load()}, m.o.Audit > 0
}
