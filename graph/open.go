package graph

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrNoGraph is returned by Open with MustExist or ReadOnly if the store has no graph.
var ErrNoGraph = errors.New("there is no graph in the store")

// Merger returns a Merger to open a graph's store with. Each open store needs one of its own.
func Merger() kv.Merger { return write.NewMerger(write.Limits{}) }

// Open opens the graph in store. In an empty store it makes one.
func Open(ctx context.Context, store kv.Store, o Options) (*Store, error) {
	o.StateCache, o.SliceSize = cmp.Or(o.StateCache, 16<<20), cmp.Or(o.SliceSize, 4000)
	o.Lanes, o.Beat = cmp.Or(o.Lanes, defaultLanes), cmp.Or(o.Beat, defaultBeat)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	merger, ok := store.Merger().(*write.Merger)
	if !ok {
		return nil, errors.New("graph: the store was opened with a Merger that is not the graph's")
	}
	s := &Store{core: core{kv: store, o: o, due: make(chan struct{}, 1), watch: &watch{store: store, beat: o.Beat, log: o.Logger}}, merger: merger}
	s.cursors.core, s.past.core, s.labels.core, s.hidden.core = &s.core, &s.core, &s.core, &s.core
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

// newSource returns the source of the store's views.
func (s *Store) newSource() *ask.Source {
	return ask.NewSource(ask.Source{
		Layout: s.layout, Kinds: s.Kinds,
		Owns: func(part uint8) bool { return !s.Writes() || s.ownsPart(part) }, Unwritten: s.Unwritten, Lacks: s.lacks,
	}, s.o.SetCache)
}

// internOptions returns the interner's options. The interner's slot is this process's first
// partition, at present.
func (s *core) internOptions() intern.Options {
	o := s.o.Intern
	o.Settings = s.layout.Settings
	o.ReadOnly = s.o.ReadOnly
	o.Logger = s.o.Logger
	o.Slot = func() uint8 { return format.Partitions(s.parts.Load()).First() }
	return o
}

// open claims the partitions that this process writes, makes the lanes, and loads them.
func (s *Store) open(ctx context.Context) (err error) {
	if !s.o.ReadOnly {
		parts := format.AllPartitions(s.layout.Settings.Partitions)
		if s.layout.Shared() {
			c := &claim{watch: s.watch, all: parts, joins: s.o.Joins, lost: s.o.Fenced, row: format.ClaimRow{Owner: s.o.Intern.Owner}}
			if err := c.take(ctx); err != nil {
				return err
			}
			s.claim, parts = c, c.row.Parts
		}
		if err := s.own(ctx, parts); err != nil {
			return err
		}
	}
	if s.layout.Shared() { // until other writers are heard
		s.unwritten.Store(uint64(format.AllPartitions(s.layout.Settings.Partitions)) &^ s.parts.Load())
	}
	if err := s.kv.View(ctx, s.load); err != nil {
		return err
	}
	if s.o.ReadOnly || s.o.Import {
		return s.kv.View(ctx, func(r kv.Reader) error {
			lacking, err := read.JSON[map[string]format.Lack](r, format.KeyLacking)
			s.lacking.Store(lacking)
			return err
		})
	}
	return s.addKinds(ctx)
}

// header reads the header of the store, or makes a new store's rows.
func (s *Store) header(ctx context.Context) (h format.Header, err error) {
	var found bool
	check := func(r kv.Reader) (err error) {
		if h, found, err = read.FindHeader(r); err != nil || !found || s.o.Import {
			return err
		}
		return read.NotImporting(r)
	}
	if err := s.kv.View(ctx, check); err != nil || found {
		return h, err
	}
	if s.o.ReadOnly || s.o.MustExist {
		return h, fmt.Errorf("%w: %w; a node that indexes creates it", read.ErrFormat, ErrNoGraph)
	}
	made := format.Header{Version: format.Newest, Settings: s.o.Intern.Settings.Or(dict.DefaultSettings), Kinds: kinds.BuiltIn.Numbers(), Table: kinds.BuiltIn}
	if err := made.Settings.Check(); err != nil {
		return h, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	err = s.kv.Update(ctx, func(tx kv.Txn) error {
		s.made = false
		if err := check(tx); err != nil || found { // another process was first
			return err
		}
		tx.Set(format.HeaderKey, made.Append(nil))
		tx.Set(format.KeySecret, secret)
		s.made = true
		return nil
	})
	if s.made {
		h = made
	}
	return h, err
}

// configure decides what is indexed: the store's kinds and those of Options.Kinds.
func (s *core) configure(has *kinds.Table) error {
	s.kinds.Store(has)
	t, err := kinds.Configure(has, s.o.Kinds)
	if err != nil {
		return fmt.Errorf("graph: configuring kinds: %w", err)
	}
	if s.o.ReadOnly {
		for _, k := range t.Configured()[len(has.Configured()):] {
			s.o.Logger.Warn("kind not indexed yet: start a node that indexes with it, then restart this one", "link", k.Source())
		}
		return nil
	}
	s.kinds.Store(t)
	return nil
}

// addKinds adds the kinds that the store did not have to its header, and notes that earlier records of them are missing. Other
// writers lose their claims, because their program may not index these kinds. A process that opens the store at the same
// time finds the added kinds here.
func (s *Store) addKinds(ctx context.Context) error {
	var added, names []string
	var all *kinds.Table
	var lacking map[string]format.Lack
	err := s.kv.Update(ctx, func(tx kv.Txn) error {
		added, names = nil, nil
		if err := s.claim.check(tx); err != nil {
			return err
		}
		h, err := read.Header(tx)
		if err != nil {
			return err
		}
		if all, err = kinds.Configure(h.Table, s.o.Kinds); err != nil {
			return err
		}
		lacks, err := read.JSON[map[string]format.Lack](tx, format.KeyLacking)
		if err != nil {
			return err
		}
		if lacking = nil; lacks != nil {
			lacking = *lacks
		}
		for i := range all.All {
			if k := &all.All[i]; !slices.Contains(h.Kinds, k.Kind) {
				added, names = append(added, k.Source()), append(names, k.Name)
			}
		}
		if len(added) == 0 {
			return setKinds(tx, all) // a set may have got a name
		}
		if lacking, err = lack(tx.Snapshot(), lacking, names, time.Now().UTC()); err != nil {
			return err
		}
		if err := setLacking(tx, lacking); err != nil {
			return err
		}
		h.Kinds = all.Numbers()
		tx.Set(format.HeaderKey, h.Append(nil))
		if s.claim != nil {
			s.claim.stopOthers(tx)
		}
		return setKinds(tx, all)
	})
	if err != nil {
		return err
	}
	s.kinds.Store(all) // another writer may have added kinds since header was called
	s.lacking.Store(&lacking)
	if len(added) > 0 && len(lacking) > 0 { // the store is not new
		s.o.Logger.Warn("new kinds of links: earlier records of them are missing; skein backfill fetches them", "links", added)
	}
	return nil
}

// setKinds writes the configured kinds of a store.
func setKinds(tx kv.Txn, t *kinds.Table) error {
	if len(t.Configured()) == 0 {
		return nil
	}
	v, err := format.AppendKinds(nil, t)
	if err != nil {
		return err
	}
	was, _, err := tx.Get(format.KeyKinds)
	if err == nil && !bytes.Equal(was, v) {
		tx.Set(format.KeyKinds, v)
	}
	return err
}

// load reads what stays in memory, apart from the lanes. Only the hidden set grows with the graph, by a bit per
// hidden account.
func (s *Store) load(r kv.Reader) error {
	secret, _, err := r.Get(format.KeySecret)
	if err == nil {
		s.secret = slices.Clone(secret)
		err = s.view(r, nil, func(*ask.View) error { return nil })
	}
	return err
}
