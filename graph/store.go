package graph

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/prometheus/client_golang/prometheus"

	"skein/graph/fence"
	"skein/graph/format"
	"skein/graph/kinds"
	"skein/graph/read"
	"skein/intern"
	"skein/intern/dict"
	"skein/internal/kv"
)

// Options say how a Store works. The zero value is usable.
type Options struct {
	Intern intern.Options
	// Defaults are the settings of a new store where Intern.Settings say nothing. The
	// zero value means dict.DefaultSettings.
	Defaults dict.Settings
	// StateCache bounds, in bytes, the accounts' states kept in memory. 0 means
	// 16 MiB.
	StateCache int64
	// SliceSize is how many records of a deleted account are erased in one
	// write. 0 means 4,000.
	SliceSize int
	// SetCache is how many bytes of large sets are kept decoded. 0 means 64 MiB.
	SetCache int64
	// Share is what is written of a store of several partitions. The zero Share
	// is all of it.
	Share Share
	// Lanes is into how many lanes the share is divided, which apply their
	// events at the same time: in a store of several partitions. 0 means 2.
	Lanes int
	// Beat is how often the writer of a share says that it is alive; whoever
	// finds its claim waits four times as long before taking it over. 0 means a
	// second.
	Beat time.Duration
	// Embedded says that the engine has but one process, and that it has the store
	// open once: nobody else writes it.
	Embedded bool
	// ReadOnly opens the graph for questions only.
	ReadOnly bool
	// MustExist refuses a store without a graph, and makes none in it.
	MustExist bool
	// Import opens the graph for Import only.
	Import bool
	// Logger receives what the operator should know. nil means nothing is said.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// A Store is the graph. Apply, EraseSlice and the cursor methods are for one
// goroutine, the writer; View and all reading for any.
type Store struct {
	format.Layout

	kv     kv.Store
	merger *Merger
	sets   *setCache
	header format.Header
	in     intern.Interner // nil if it is read only
	o      Options
	secret []byte
	made   bool // by this Open
	hidden hiddenCache
	lanes  []*lane      // one, but in a store of several partitions; none if it is read only
	claim  *fence.Claim // of the partitions that are written; nil if there is but one
}

// Open opens the graph in store, and makes its rows if the store is empty.
func Open(ctx context.Context, store kv.Store, o Options) (*Store, error) {
	if o.StateCache <= 0 {
		o.StateCache = 16 << 20
	}
	if o.SliceSize <= 0 {
		o.SliceSize = 4000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	merger, ok := store.Merger().(*Merger)
	if !ok {
		return nil, errors.New("graph: the store was opened with a Merger that is not the graph's")
	}
	s := &Store{kv: store, merger: merger, sets: newSetCache(o.SetCache), o: o}
	if o.Metrics != nil {
		s.sets.results = func(result string) { o.Metrics.Sets.WithLabelValues(result).Inc() }
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	in, err := intern.Open(ctx, store, s.internOptions())
	if err != nil {
		return nil, err
	}
	s.in = in
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("graph: opening: %w", err), s.Close(ctx))
	}
	return s, nil
}

// internOptions are the interner's: its slot is the first partition of ours.
func (s *Store) internOptions() intern.Options {
	o := s.o.Intern
	o.Settings = s.Settings
	o.Alone = s.o.Embedded
	o.Logger = s.o.Logger
	if first, _, err := s.o.Share.partitions(dict.MaxPartitions); err == nil {
		o.Slot = first
	}
	return o
}

// open claims what is written, makes the lanes, and reads what they keep.
func (s *Store) open(ctx context.Context) error {
	if !s.o.ReadOnly {
		first, end, err := s.o.Share.partitions(s.Settings.Partitions)
		if err != nil {
			return err
		}
		if s.Shared() {
			if s.claim, err = fence.Take(ctx, s.kv, fence.Options{
				First: first, End: end, Owner: s.o.Intern.Owner, Shards: s.o.Intern.Shards, Beat: s.o.Beat, Logger: s.o.Logger,
			}); err != nil {
				return err
			}
		}
		s.makeLanes(first, end)
	}
	return s.kv.View(ctx, s.load)
}

// prepare reads the header, or makes the rows of a new store.
func (s *Store) prepare(ctx context.Context) error {
	want := s.o.Intern.Settings
	var found bool
	var h format.Header
	check := func(r kv.Reader) (err error) {
		if h, found, err = read.FindHeader(r); err != nil || !found || s.o.Import {
			return err
		}
		return read.NotImporting(r)
	}
	if err := s.kv.View(ctx, check); err != nil {
		return err
	}
	if !found && (s.o.ReadOnly || s.o.MustExist) {
		return fmt.Errorf("%w: there is no graph in the store; a node that indexes makes it", read.ErrFormat)
	}
	if !found {
		if err := s.makeRows(ctx, want, check, &h); err != nil {
			return err
		}
	}
	if want = want.Or(h.Settings); want != h.Settings {
		return fmt.Errorf("%w: the store was made with %s, and asked for are %s", dict.ErrSettings, h.Settings, want)
	}
	s.Layout, s.header = format.Layout{Settings: h.Settings}, h
	return nil
}

// makeRows makes the rows of a new store. Another process may be first.
func (s *Store) makeRows(ctx context.Context, want dict.Settings, check func(kv.Reader) error, h *format.Header) error {
	defaults := s.o.Defaults
	if defaults == (dict.Settings{}) {
		defaults = dict.DefaultSettings
	}
	made := format.Header{Version: format.Version, Settings: want.Or(defaults), Kinds: allKinds()}
	if err := made.Settings.Check(); err != nil {
		return err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("graph: making a secret: %w", err)
	}
	return s.kv.Update(ctx, func(tx kv.Txn) error {
		s.made = false
		if err := check(tx); err != nil || h.Version != 0 {
			return err
		}
		tx.Set(format.HeaderKey, made.Append(nil))
		tx.Set(format.KeySecret, secret)
		*h, s.made = made, true
		return nil
	})
}

func allKinds() (all []kinds.Kind) {
	for _, k := range kinds.All {
		all = append(all, k.Kind)
	}
	slices.Sort(all)
	return all
}

// load reads what is kept in memory: nothing whose size grows with the graph
// but the hidden set, a bit per hidden account.
func (s *Store) load(r kv.Reader) error {
	secret, _, err := r.Get(format.KeySecret)
	if err != nil {
		return err
	}
	s.secret = append([]byte(nil), secret...)
	if s.hidden.version, err = read.HiddenVersion(r, s.Layout); err != nil {
		return err
	}
	if s.hidden.set, err = read.Bitmap(r, s.Layout, kinds.Hidden, 0); err != nil {
		return err
	}
	for _, l := range s.lanes {
		if err := l.load(r); err != nil {
			return err
		}
	}
	s.gauges()
	return nil
}

// closeTime is how long a Close may take: the store may not answer, and what was
// not said is found out by the next writer.
const closeTime = 2 * time.Second

// Close notes how far the leased ids were used, and gives up the claim. It does
// not close the store under it, and is not cut short by the end of ctx.
func (s *Store) Close(ctx context.Context) error {
	if s.o.ReadOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err := s.in.Close(ctx)
	if errors.Is(err, kv.ErrDiskFull) { // it was said, and the next writer finds it out
		err = nil
	}
	if s.claim != nil {
		err = errors.Join(err, s.claim.Close(ctx))
	}
	return err
}

// Engine names the engine below.
func (s *Store) Engine() string { return s.kv.Engine() }

// Events returns how many events of repos were applied since the store was opened,
// and how many were dropped because they had been applied before. It is for the
// writer.
func (s *Store) Events() (applied, replayed int64) {
	for _, l := range s.lanes {
		applied += l.events
		replayed += l.replays
	}
	return applied - replayed, replayed
}

// Made reports whether Open made the store, and did not find one.
func (s *Store) Made() bool { return s.made }

// Secret returns 32 bytes that belong to this store and never leave it.
func (s *Store) Secret() []byte { return s.secret }

// hiddenOf returns the hidden set of the state that r reads. The set kept by
// the writer serves where its version is the same, which is nearly always.
func (s *Store) hiddenOf(r kv.Reader) (*roaring64.Bitmap, error) {
	version, err := read.HiddenVersion(r, s.Layout)
	if err != nil {
		return nil, err
	}
	if set := s.hidden.get(version); set != nil {
		return set, nil
	}
	if !s.Shared() {
		return read.Bitmap(r, s.Layout, kinds.Hidden, 0)
	}
	// Another process has changed it.
	s.hidden.reading.Lock()
	defer s.hidden.reading.Unlock()
	if set := s.hidden.get(version); set != nil {
		return set, nil
	}
	set, err := read.Bitmap(r, s.Layout, kinds.Hidden, 0)
	if err == nil {
		s.hidden.put(version, set)
	}
	return set, err
}

// Metrics of this package. A nil *Metrics counts nothing.
type Metrics struct {
	Edges  *prometheus.CounterVec // kind, action
	Commit prometheus.Histogram
	// Retries are attempts that were made again, by cause.
	Retries *prometheus.CounterVec
	// Conflicts are what commits conflicted on, by keyspace.
	Conflicts      *prometheus.CounterVec
	Replays        prometheus.Counter
	Spills         prometheus.Counter
	Sets           *prometheus.CounterVec // result
	Desynchronized prometheus.Gauge
	Partial        prometheus.Gauge
	Erasing        prometheus.Gauge
}

// NewMetrics registers the metrics of this package.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Edges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_edges_total", Help: "Edges written (add; an edge that is there already may be written again) and removed (remove).",
		}, []string{"kind", "action"}),
		Commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "skein_store_commit_seconds", Help: "Time of one atomic write, reads included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		Retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_store_retries_total", Help: "Writes tried again, by cause.",
		}, []string{"cause"}),
		Conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_store_conflicts_total", Help: "Key ranges that another writer had changed when a commit was tried, as the engine reports them, by keyspace.",
		}, []string{"keyspace"}),
		Replays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_graph_replays_total", Help: "Events dropped because they had been applied before.",
		}),
		Spills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skein_graph_spills_total", Help: "Rows and chunks that had grown too large and were spilled.",
		}),
		Sets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_graph_large_sets_total", Help: "Large sets asked for, by what it took: cache (decoded already), load (read whole), probe (read in part).",
		}, []string{"result"}),
		Desynchronized: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_consumer_desynchronized_repos", Help: "Repos of which something was missed.",
		}),
		Partial: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_consumer_partial_repos", Help: "Repos whose past was never seen.",
		}),
		Erasing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skein_graph_erasing_accounts", Help: "Deleted accounts whose records are still being erased.",
		}),
	}
	reg.MustRegister(m.Edges, m.Commit, m.Retries, m.Conflicts, m.Replays, m.Spills, m.Sets, m.Desynchronized, m.Partial, m.Erasing)
	return m
}

// Retried counts an attempt that the engine makes again.
func (m *Metrics) Retried(cause string) { m.retry(cause) }

// Conflicted counts a conflict that the engine reports, by its first key.
func (m *Metrics) Conflicted(key []byte) { m.Conflicts.WithLabelValues(format.KeyspaceOf(key)).Inc() }

func (m *Metrics) retry(cause string) {
	if m != nil {
		m.Retries.WithLabelValues(cause).Inc()
	}
}

// gauges tells the metrics what the store holds now.
func (s *Store) gauges() {
	if m := s.o.Metrics; m != nil && len(s.lanes) > 0 {
		var desynchronized, partial, erasing int64
		for _, l := range s.lanes {
			desynchronized += l.counts.Desynchronized + l.others.Desynchronized
			partial += l.counts.Partial + l.others.Partial
			erasing += int64(len(l.erasing))
		}
		m.Desynchronized.Set(float64(desynchronized))
		m.Partial.Set(float64(partial))
		m.Erasing.Set(float64(erasing))
	}
}
