package graph

import (
	"context"
	"errors"
	"fmt"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// common is what most questions read first, in a state of the graph.
type common struct {
	stamp  uint64 // kv.Stamped
	hidden read.HiddenVersions
	known  ask.Known
}

// commonRows are the rows that it is read from. Every write of one of them calls kv.Txn.Touch.
var commonRows = [...][]byte{format.KeyHidden, format.KeyCounts, format.KeyHoles, format.KeyBackfill}

// commonIn returns what is common in the state that r reads: what was read last, if the store still has the same stamp.
func commonIn(s *core, r kv.Reader) (*common, error) {
	c := &common{}
	if of, ok := r.(kv.Stamped); ok {
		c.stamp = of.Stamp()
	}
	if last := s.common.Load(); last != nil && last.stamp == c.stamp {
		return last, nil
	}
	if p, ok := r.(kv.Prefetcher); ok {
		for _, rows := range commonRows {
			p.PrefetchScan(rows, kv.PrefixEnd(rows), 0)
		}
	}
	var errs [4]error
	all := format.AllPartitions(s.layout.Settings.Partitions)
	c.hidden, errs[0] = read.Hidden(r)
	c.known.Holes, errs[1] = read.Holes(r, all)
	c.known.Past, errs[2] = read.Backfill(r, all)
	c.known.Counts, errs[3] = read.AccountCounts(r)
	err := errors.Join(errs[:]...)
	if c.stamp != 0 && err == nil {
		s.common.Store(c)
	}
	return c, err
}

// View calls fn with a consistent state of the graph.
func (s *Store) View(ctx context.Context, fn func(*ask.View) error) error {
	return s.ViewCharged(ctx, nil, fn)
}

// ViewCharged is View with a charge for each read: its bytes, and a price for each key. If
// charge returns an error, the read ends with that error. charge may be nil.
func (s *Store) ViewCharged(ctx context.Context, charge func(cost int) error, fn func(*ask.View) error) error {
	return s.kv.View(ctx, func(r kv.Reader) error { return s.view(r, charge, fn) })
}

// ViewAcross is View for reading much of the graph, for as long as that takes. On FoundationDB
// the state may change between reads; crossings counts how often (kv.Store.ViewAcross).
func (s *Store) ViewAcross(ctx context.Context, fn func(*ask.View) error) (crossings int, err error) {
	return s.kv.ViewAcross(ctx, func(r kv.Reader) error { return s.view(r, nil, fn) })
}

func (s *Store) view(r kv.Reader, charge func(cost int) error, fn func(*ask.View) error) error {
	c, err := commonIn(&s.core, r)
	if err != nil {
		return fmt.Errorf("graph: reading what is known of the store: %w", err)
	}
	hidden, err := s.hidden.of(r, c.hidden)
	if err != nil {
		return fmt.Errorf("graph: reading the hidden accounts: %w", err)
	}
	return fn(s.source.View(r, hidden, &c.known, charge))
}
