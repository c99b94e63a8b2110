package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein/consumer/archive"
	"skein/consumer/wire"
	"skein/graph"
	"skein/graph/format"
	"skein/internal/loglimit"
)

// Options say what is fetched, and how.
type Options struct {
	// Store is what repos are put in. Its Options.Queued must be Manager.Queued.
	Store *graph.Store
	// Relay is the address of the relay that lists hosts and repos, "" if there is none:
	// http(s):// or ws(s)://.
	Relay string
	// PLC is the address of the directory of did:plc. "" means the public one.
	PLC string
	// Hosts are PDSes that the operator named.
	Hosts []string
	// AllowPrivateHosts has hosts asked at loopback and private addresses as well.
	AllowPrivateHosts bool
	// MaxRepoBytes bounds a repo. 0 means 1 GiB.
	MaxRepoBytes int64
	// Fetchers is how many repos are fetched at once, and PerHost how many from one host.
	// 0 means 64 and 8.
	Fetchers, PerHost int
	// Tries is how often a repo is fetched before it is given up. 0 means 12.
	Tries int
	// Retry is how long to wait after a first failure; doubled after each, up to six
	// hours. 0 means two seconds: over an hour, until it is given up.
	Retry time.Duration
	// HostRetry is how long a host is left alone after it did not answer; doubled after
	// each time in a row, up to ten minutes. After HostTries times it is given up, with
	// what is queued of it. 0 means a second and 14, which is an hour and a half.
	HostRetry time.Duration
	HostTries int
	// HeaderTimeout bounds the wait for an answer, IdleTimeout that for more of it, and
	// RepoTimeout all of it. 0 means 30 s, 30 s and 10 minutes.
	HeaderTimeout, IdleTimeout, RepoTimeout time.Duration
	// ArchiveKey is sent to archives.
	ArchiveKey string
	// Settle is how long after a hole in the stream was noticed revs are compared. 0 means
	// 15 seconds: most of what was not in the hole has come by then, and the rest is
	// fetched in vain.
	Settle time.Duration
	// ArchivePoll is Options.Poll of an archive's Reader.
	ArchivePoll time.Duration
	// Listening returns since when the index has heard the stream without a gap, if that
	// began in this run: the present, while it has heard nothing. nil means that there is
	// no stream.
	Listening func() (since time.Time, ok bool)
	Logger    *slog.Logger
	Metrics   *Metrics
}

func (o *Options) defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.Retry, 2*time.Second)
	set(&o.HostRetry, time.Second)
	if o.HostTries <= 0 {
		o.HostTries = 14
	}
	set(&o.HeaderTimeout, 30*time.Second)
	set(&o.IdleTimeout, 30*time.Second)
	set(&o.RepoTimeout, 10*time.Minute)
	if o.MaxRepoBytes <= 0 {
		o.MaxRepoBytes = 1 << 30
	}
	if o.Fetchers <= 0 {
		o.Fetchers = 64
	}
	if o.PerHost <= 0 {
		o.PerHost = 8
	}
	if o.Tries <= 0 {
		o.Tries = 12
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.PLC == "" {
		o.PLC = identity.DefaultPLCURL
	}
	o.PLC = strings.TrimSuffix(o.PLC, "/")
	o.Relay = HTTPAddress(o.Relay)
	for i := range o.Hosts {
		o.Hosts[i] = HTTPAddress(o.Hosts[i])
	}
}

// HTTPAddress returns the address at which a relay, or a host that was named in short, is
// asked over HTTP: https:// unless it says otherwise, and without a path.
func HTTPAddress(s string) string {
	if s == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		scheme, rest = "https", s
	}
	switch scheme {
	case "ws":
		scheme = "http"
	case "wss":
		scheme = "https"
	}
	rest, _, _ = strings.Cut(rest, "/")
	return scheme + "://" + rest
}

// A Manager fetches what is queued, and lists what there is.
type Manager struct {
	o         Options
	log       *slog.Logger
	seldom    loglimit.Limiter
	client    *http.Client
	directory *identity.CacheDirectory
	placer    *placer

	mu      sync.Mutex
	sched   *scheduler
	wake    chan struct{}
	gaps    chan struct{}
	large   chan struct{}       // slots for repos that are large
	parked  map[string]string   // DIDs that are not tried, and why: a Failure, or "" of inactive ones
	lists   map[string]*listing // by host
	list    *listJob            // under way
	archive *archive.Reader     // being read
	ended   map[string]string   // what has ended in this run, and how
	named   map[string]bool     // hosts that an operator named
	jobs    sync.WaitGroup
	running context.Context //nolint:containedctx // that of Run, under which jobs are begun by calls

	fetched, records, bytes atomic.Int64
}

// New returns a Manager, which works once it runs.
func New(o Options) *Manager {
	o.defaults()
	m := &Manager{
		o: o, log: o.Logger, client: newClient(&o), placer: newPlacer(o.Store), sched: newScheduler(o.PerHost),
		wake: make(chan struct{}, 1), gaps: make(chan struct{}), parked: map[string]string{}, lists: map[string]*listing{}, ended: map[string]string{}, named: map[string]bool{}, large: make(chan struct{}, 2),
	}
	m.directory = newDirectory(&o, m.client)
	for _, h := range o.Hosts {
		m.named[h] = true
	}
	m.sched.trusts = func(host string) bool { return m.o.AllowPrivateHosts || m.named[host] }
	return m
}

func newDirectory(o *Options, client *http.Client) *identity.CacheDirectory {
	return identity.NewCacheDirectory(&identity.BaseDirectory{
		PLCURL: o.PLC, HTTPClient: http.Client{Transport: bounded{client.Transport}, CheckRedirect: client.CheckRedirect, Timeout: 20 * time.Second},
		SkipHandleVerification: true, UserAgent: "skein",
	}, 100_000, time.Hour, time.Minute, time.Minute)
}

// bounded bounds the bodies of answers: documents are small.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, 1<<20), resp.Body}
	}
	return resp, err //nolint:wrapcheck // it is the transport
}

// SetStore sets the store, where it could not be there before the Manager.
func (m *Manager) SetStore(s *graph.Store) { m.o.Store, m.placer.store = s, s }

// Queued takes over what the graph has queued. It is graph.Options.Queued.
func (m *Manager) Queued(all []graph.Queued) {
	m.mu.Lock()
	for i := range all {
		delete(m.parked, all[i].DID)
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
	m.directory = newDirectory(&m.o, m.client)
}

// SetListening sets Options.Listening, before Run.
func (m *Manager) SetListening(since func() (time.Time, bool)) { m.o.Listening = since }

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
	m.jobs.Go(func() { m.watchGaps(ctx) })
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
	_, err := m.o.Store.ViewAcross(ctx, func(s *graph.Snapshot) error {
		return s.Resyncs(func(did string, row format.Resync) error {
			if !m.o.Store.Owns([]byte(did)) {
				return nil
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			switch row.State {
			case format.ResyncFailed, format.ResyncInactive:
				m.parked[did] = row.Failure
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
	_, err = m.o.Store.ViewAcross(ctx, func(s *graph.Snapshot) error {
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

// Resync queues repos to be fetched whole, whatever is known of them.
func (m *Manager) Resync(ctx context.Context, reason string, dids ...string) error {
	var b graph.Batch
	for len(dids) > 0 {
		n := min(len(dids), 1000)
		for _, did := range dids[:n] {
			b.AddResync([]byte(did), reason, "")
		}
		if err := m.o.Store.Apply(ctx, "", &b); err != nil {
			return fmt.Errorf("backfill: queueing repos: %w", err)
		}
		b.Reset()
		dids = dids[n:]
	}
	return nil
}

// A Status says how far the past has been fetched.
type Status struct {
	// Waiting are the repos that are queued, Later those of them that are tried again only
	// in a minute or later; Failed those that were given up, by reason; Inactive those
	// whose host says that the account is not active.
	Waiting  int64            `json:"waiting"`
	Later    int64            `json:"later"`
	Failed   map[string]int64 `json:"failed"`
	Inactive int64            `json:"inactive"`
	// Fetched are the repos put in place since the process runs, with Records and Bytes.
	Fetched int64 `json:"fetched"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// Hosts are the hosts whose repos are being listed, HostsDone those that are through,
	// and Listed how many repos they named.
	Hosts     int   `json:"hosts"`
	HostsDone int   `json:"hostsDone"`
	Listed    int64 `json:"listed"`
	// Archive is the one that is being read, and how far that is.
	Archive    string  `json:"archive,omitempty"`
	ArchiveSeq int64   `json:"archiveSeq,omitempty"`
	ArchiveTip int64   `json:"archiveTip,omitempty"`
	ArchiveLag float64 `json:"archiveLagSeconds,omitempty"`
	// Accounts, Complete, Partial and Desynchronized are those of the index.
	Accounts       int64 `json:"accounts"`
	Complete       int64 `json:"complete"`
	Partial        int64 `json:"partial"`
	Desynchronized int64 `json:"desynchronized"`
	// Hole says that there was a hole in the stream, and that what the index has is not
	// compared with the relay's list since.
	Hole bool `json:"hole,omitempty"`
	// Busy says that a list, or an archive, is under way, or that repos are due, or nearly.
	Busy bool `json:"busy"`
	// Ended says what has ended since the process runs: "ok", or why not.
	Ended map[string]string `json:"ended,omitempty"`
}

// Status returns how far it is. counts are those of the index.
func (m *Manager) Status(counts graph.Counts) Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := Status{
		Waiting: int64(len(m.sched.jobs)), Failed: map[string]int64{},
		Fetched: m.fetched.Load(), Records: m.records.Load(), Bytes: m.bytes.Load(), Ended: maps.Clone(m.ended),
		Accounts: counts.Accounts, Complete: counts.Complete, Partial: counts.Partial, Desynchronized: counts.Desynchronized,
	}
	for _, failure := range m.parked {
		if failure == "" {
			st.Inactive++
		} else {
			st.Failed[failure]++
		}
	}
	for _, l := range m.lists {
		st.Hosts++
		if l.done {
			st.HostsDone++
		}
		st.Listed += l.listed
	}
	if m.archive != nil {
		p := m.archive.Progress()
		st.Archive, st.ArchiveSeq, st.ArchiveTip = strings.TrimPrefix(m.archive.Source(), "archive "), p.Seq, p.Tip
		st.Records += p.Records
		st.Bytes += p.Bytes
		if !p.Witnessed.IsZero() {
			st.ArchiveLag = time.Since(p.Witnessed).Seconds()
		}
	}
	st.Later = m.sched.later(time.Now().Add(time.Minute))
	st.Busy = m.list != nil || m.archive != nil || st.Waiting > st.Later
	return st
}

// StatusNow is Status with the counts of the index.
func (m *Manager) StatusNow() Status {
	var counts graph.Counts
	if m.o.Store != nil {
		_ = m.o.Store.View(context.Background(), func(s *graph.Snapshot) (err error) { counts, err = s.Counts(); return err })
	}
	st := m.Status(counts)
	if m.o.Store != nil && !m.newestHole(context.Background()).IsZero() {
		st.Hole = true
	}
	return st
}

// Queue returns how many repos wait to be fetched whole, and how many were given up, by
// reason.
func (m *Manager) Queue() (waiting int64, failed map[string]int64) {
	st := m.Status(graph.Counts{})
	return st.Waiting, st.Failed
}

// WaitingNow returns how many repos are queued.
func (m *Manager) WaitingNow() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sched.jobs)
}

// ErrBusy is returned where something of the kind is under way already.
var ErrBusy = errors.New("one is under way already")

// Archive begins to read an archive.
func (m *Manager) Archive(ctx context.Context, address string) error {
	if _, err := archive.Source(address); err != nil {
		return err
	}
	m.mu.Lock()
	busy := m.archive != nil
	running := m.running
	m.mu.Unlock()
	if busy {
		return fmt.Errorf("reading an archive: %w", ErrBusy)
	}
	if running == nil {
		return errors.New("backfill: it does not run")
	}
	err := m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) {
		if b.Archive != address {
			b.Archive, b.Begun = address, time.Now().UTC()
		}
	})
	if err != nil {
		return err
	}
	return m.beginArchive(running, address)
}

func (m *Manager) beginArchive(ctx context.Context, address string) error {
	r, err := archive.New(archive.Options{
		URL: address, Key: m.o.ArchiveKey, Store: m.o.Store, Until: m.archiveUntil, Poll: m.o.ArchivePoll,
		Logger: m.log.With("archive", address), Dropped: func(reason wire.Reason) { m.o.Metrics.dropped(string(reason)) },
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.archive != nil {
		m.mu.Unlock()
		return fmt.Errorf("reading an archive: %w", ErrBusy)
	}
	m.archive = r
	delete(m.ended, "archive")
	m.mu.Unlock()
	m.jobs.Go(func() {
		err := r.Run(ctx)
		if err == nil {
			err = m.endArchive(ctx)
		}
		p := r.Progress()
		m.records.Add(p.Records)
		m.bytes.Add(p.Bytes)
		m.mu.Lock()
		m.archive = nil
		if ctx.Err() == nil {
			m.ended["archive"] = said(err)
		}
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			m.log.Error("reading the archive failed: it is gone on with at the next start, or with skein backfill --archive", "archive", address, "seq", p.Seq, "error", err)
		default:
			m.log.Info("the archive has been read", "archive", address, "seq", p.Seq, "records", p.Records, "bytes", p.Bytes)
		}
		m.poke()
	})
	return nil
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// archiveUntil returns what an archive must reach: what happened before the index began
// to listen, or if it has since long listened, before the archive was begun. Where
// nobody listens, that is what is sealed now.
func (m *Manager) archiveUntil() time.Time {
	if m.o.Listening == nil {
		return time.Time{}
	}
	since, ok := m.o.Listening()
	if !ok { // the stream was heard before the archive was begun
		since = m.o.Store.Backfill().Begun
	}
	return since.Add(archiveMargin)
}

// archiveMargin is how much further an archive is read than when the index began to
// listen: the archive may have seen late what happened before.
const archiveMargin = time.Minute

// endArchive makes complete what the archive was about.
func (m *Manager) endArchive(ctx context.Context) error {
	doubtful, err := m.o.Store.EndArchive(ctx)
	if err != nil {
		return err
	}
	err = m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) {
		if b.Done == nil {
			b.Done = map[string]time.Time{}
		}
		b.Done[format.DoneArchive+b.Archive] = time.Now().UTC()
		b.Archive, b.Begun = "", time.Time{}
	})
	if err != nil {
		return err
	}
	return m.Resync(ctx, "archive_doubtful", doubtful...)
}

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
		job := &listJob{backfill: true, hosts: b.Hosts}
		if _, err := m.reserve(job); err != nil {
			return err
		}
		m.log.Info("going on with the lists of hosts", "hosts", len(b.Hosts))
		m.beginList(ctx, job)
	}
	return nil
}
