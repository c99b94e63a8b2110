package graph

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/fence"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrNoGraph is returned by Open for a store in which no graph was begun, if it is not to begin
// one.
var ErrNoGraph = errors.New("there is no graph in the store")

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
	merger, ok := store.Merger().(*write.Merger)
	if !ok {
		return nil, errors.New("graph: the store was opened with a Merger that is not the graph's")
	}
	s := &Store{kv: store, o: o, merger: merger}
	header, err := s.header(ctx)
	if err != nil {
		return nil, err
	}
	s.layout = format.Layout{Settings: header.Settings}
	s.source = s.newSource()
	if err := s.configure(header.Table); err != nil {
		return nil, err
	}
	if s.ids, err = intern.Open(ctx, store, s.internOptions()); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("graph: opening: %w", err), s.Close(ctx))
	}
	return s, nil
}

// newSource returns what the snapshots of the store have in common.
func (s *Store) newSource() *ask.Source {
	var results func(string)
	if m := s.o.Metrics; m != nil {
		results = func(result string) { m.Sets.WithLabelValues(result).Inc() }
	}
	return ask.NewSource(ask.Source{
		Layout: s.layout, Kinds: s.Kinds, Uncompared: s.uncompared,
		Owns: func(part uint8) bool { return s.owner.ownsPart(part) },
		Lacks: func() map[string]format.Lack {
			if added := s.lacking.Load(); added != nil {
				return *added
			}
			return nil
		},
	}, s.o.SetCache, results)
}

// internOptions are the interner's: its slot is the first partition of ours.
func (s *Store) internOptions() intern.Options {
	o := s.o.Intern
	o.Settings = s.layout.Settings
	o.Alone = s.o.Embedded
	o.Logger = s.o.Logger
	if first, _, err := s.o.Share.partitions(dict.MaxPartitions); err == nil {
		o.Slot = first
	}
	return o
}

// open claims what is written, makes the lanes, and reads what they keep.
func (s *Store) open(ctx context.Context) error {
	partitions := s.layout.Settings.Partitions
	first, end, err := s.o.Share.partitions(partitions)
	if s.o.ReadOnly {
		first, end, err = 0, 0, nil
	}
	several := &several{store: s, first: first, end: end}
	if partitions == 1 {
		alone := &alone{layout: s.layout, ids: s.ids}
		s.owner, s.intake, s.guard, s.hiddenSets = alone, alone, alone, alone
	} else {
		s.owner, s.intake, s.guard, s.hiddenSets = several, several, several, several
	}
	if err != nil {
		return err
	}
	if !s.o.ReadOnly {
		if partitions > 1 {
			if several.claim, err = fence.Take(ctx, s.kv, fence.Options{
				First: first, End: end, Owner: s.o.Intern.Owner, Shards: s.o.Intern.Shards, Beat: s.o.Beat, Clock: s.o.Clock, Lost: s.o.Fenced, Logger: s.o.Logger,
			}); err != nil {
				return err
			}
		}
		s.makeLanes(first, end)
	}
	if err := s.kv.View(ctx, s.load); err != nil {
		return err
	}
	if s.o.ReadOnly || s.o.Import {
		return s.kv.View(ctx, func(r kv.Reader) error {
			lacking, err := readLacking(r)
			s.lacking.Store(&lacking)
			return err
		})
	}
	return s.addKinds(ctx)
}

// header reads the header of the store, or makes the rows of a new one.
func (s *Store) header(ctx context.Context) (h format.Header, err error) {
	want := s.o.Intern.Settings
	var found bool
	check := func(r kv.Reader) (err error) {
		if h, found, err = read.FindHeader(r); err != nil || !found || s.o.Import {
			return err
		}
		return read.NotImporting(r)
	}
	if err := s.kv.View(ctx, check); err != nil {
		return h, err
	}
	if !found {
		if s.o.ReadOnly || s.o.MustExist {
			return h, fmt.Errorf("%w: %w; a node that indexes makes it", read.ErrFormat, ErrNoGraph)
		}
		made := format.Header{Version: format.Newest, Settings: want.Or(s.o.Defaults.Or(dict.DefaultSettings)), Kinds: kinds.BuiltIn.Numbers(), Table: kinds.BuiltIn}
		err := s.makeRows(ctx, made, func(tx kv.Txn) (others bool, err error) { err = check(tx); return found, err })
		if err != nil {
			return h, err
		}
		if s.made {
			h = made
		}
	}
	if want = want.Or(h.Settings); want != h.Settings {
		return h, fmt.Errorf("%w: the store was made with %s, and asked for are %s", dict.ErrSettings, h.Settings, want)
	}
	return h, nil
}

// makeRows makes the rows of a new store, unless another process was first.
func (s *Store) makeRows(ctx context.Context, h format.Header, others func(kv.Txn) (bool, error)) error {
	if err := h.Settings.Check(); err != nil {
		return err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("graph: making a secret: %w", err)
	}
	return s.kv.Update(ctx, func(tx kv.Txn) error {
		s.made = false
		if found, err := others(tx); err != nil || found {
			return err
		}
		tx.Set(format.HeaderKey, h.Append(nil))
		tx.Set(format.KeySecret, secret)
		s.made = true
		return nil
	})
}

// configure decides what is indexed: what the store has, and what it is asked to have
// besides.
func (s *Store) configure(has *kinds.Table) error {
	s.kinds.Store(has)
	t, err := kinds.Configure(has, s.o.Kinds)
	if err != nil {
		return fmt.Errorf("graph: the kinds that are asked for: %w", err)
	}
	if s.o.ReadOnly {
		for _, k := range t.Configured()[len(has.Configured()):] {
			s.o.Logger.Warn("this kind is not indexed in the store yet: a node that indexes adds it, and then this one is to be started again", "link", k.Source())
		}
		return nil
	}
	s.kinds.Store(t)
	return nil
}

// addKinds notes in the header the kinds that the store did not have, and as a gap of
// every source that what was made of them before is not there. Other writers lose their
// claims: they may be of a program that does not index these kinds. Who opens meanwhile, and
// has its claim already, finds here what has been added.
func (s *Store) addKinds(ctx context.Context) error {
	l := s.lanes[0]
	var added []string
	var all *kinds.Table
	var lacking map[string]format.Lack
	noted := map[uint32]int{}
	err := s.kv.Update(ctx, func(tx kv.Txn) error {
		added = nil
		clear(noted)
		if err := s.guard.check(tx); err != nil {
			return err
		}
		h, err := read.Header(tx)
		if err != nil {
			return err
		}
		if all, err = kinds.Configure(h.Table, s.o.Kinds); err != nil {
			return err
		}
		now := time.Now().UTC()
		if lacking, err = readLacking(tx); err != nil {
			return err
		}
		var names []string
		for i := range all.All {
			if k := &all.All[i]; !slices.Contains(h.Kinds, k.Kind) {
				added, names = append(added, k.Source()), append(names, k.Name)
			}
		}
		if len(added) == 0 {
			return nil
		}
		if lacking, err = lack(tx.Snapshot(), lacking, names, now); err != nil {
			return err
		}
		if err := setLacking(tx, lacking); err != nil {
			return err
		}
		h.Kinds = all.Numbers()
		tx.Set(format.HeaderKey, h.Append(nil))
		if err := setKinds(tx, all); err != nil {
			return err
		}
		s.guard.stopOthers(tx)
		cursors, err := read.Cursors(tx.Snapshot())
		if err != nil {
			return err
		}
		for _, c := range cursors {
			gap := format.Gap{
				Source: c.Source, After: c.Seq, Reason: format.KindAdded, Time: now.Truncate(time.Second), Suspect: true,
				Detail: "of records that were made before, " + strings.Join(added, ", ") + " are not in the index",
			}
			number, err := l.notes.Write(tx, c.Source, l.cursors(c.Source)[0].Number, nil, []format.Gap{gap})
			if err != nil {
				return err
			}
			noted[number]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.kinds.Store(all) // another writer may have added some since the header was read
	s.lacking.Store(&lacking)
	if len(added) == 0 {
		return nil
	}
	for number, n := range noted {
		l.notes.Add(number, 0, n)
	}
	if len(lacking) == 0 { // the store is new
		return nil
	}
	s.o.Logger.Warn("these links are indexed for the first time; what was made of them before is not in the store, and is recorded as a gap", "links", added, "sources", len(noted))
	return nil
}

// setKinds writes what a store is configured with.
func setKinds(tx kv.Txn, t *kinds.Table) error {
	if len(t.Configured()) == 0 {
		return nil
	}
	v, err := format.AppendKinds(nil, t)
	if err == nil {
		tx.Set(format.KeyKinds, v)
	}
	return err
}

// load reads what is kept in memory: nothing whose size grows with the graph
// but the hidden set, a bit per hidden account.
func (s *Store) load(r kv.Reader) error {
	secret, _, err := r.Get(format.KeySecret)
	if err != nil {
		return err
	}
	s.secret = slices.Clone(secret)
	if err := s.hiddenSets.load(r); err != nil {
		return err
	}
	for _, l := range s.lanes {
		if err := l.load(r); err != nil {
			return err
		}
	}
	s.gauges()
	if err := s.loadHoles(r); err != nil {
		return err
	}
	return s.loadBackfill(r)
}
