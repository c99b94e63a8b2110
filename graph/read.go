package graph

import (
	"context"
	"fmt"

	"skein.blue/graph/ask"
	"skein.blue/internal/kv"
)

// View calls fn with a consistent state of the graph.
func (s *Store) View(ctx context.Context, fn func(*ask.View) error) error {
	return s.ViewCharged(ctx, nil, fn)
}

// ViewCharged is View, and tells charge, if it is not nil, what is read, as it is
// read: bytes, and a price for each key. An error from charge ends the read that
// it was called in, and is returned by it.
func (s *Store) ViewCharged(ctx context.Context, charge func(cost int) error, fn func(*ask.View) error) error {
	return s.kv.View(ctx, func(r kv.Reader) error { return s.view(r, charge, fn) })
}

// ViewAcross is View for reading much of the graph, however long that takes
// (kv.Store.ViewAcross).
func (s *Store) ViewAcross(ctx context.Context, fn func(*ask.View) error) (crossings int, err error) {
	return s.kv.ViewAcross(ctx, func(r kv.Reader) error { return s.view(r, nil, fn) })
}

func (s *Store) view(r kv.Reader, charge func(cost int) error, fn func(*ask.View) error) error {
	hidden, err := s.hiddenSets.hidden(r)
	if err != nil {
		return fmt.Errorf("graph: reading the hidden accounts: %w", err)
	}
	return fn(s.source.Snapshot(r, hidden, charge))
}
