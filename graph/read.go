package graph

import (
	"context"
	"fmt"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// The rows that most questions read. On a cluster, a view begins to read them at once.
var commonRows = [...][]byte{format.KeyHidden, format.KeyCounts, format.KeyHoles, format.KeyBackfill}

// View calls fn with a consistent state of the graph.
func (s *Store) View(ctx context.Context, fn func(*ask.View) error) error {
	return s.ViewCharged(ctx, nil, fn)
}

// ViewCharged is View with a charge for each read: its bytes, and a price for each key. If
// charge returns an error, the read ends with that error. charge may be nil.
func (s *Store) ViewCharged(ctx context.Context, charge func(cost int) error, fn func(*ask.View) error) error {
	return s.kv.View(ctx, func(r kv.Reader) error {
		if p, ok := r.(kv.Prefetcher); ok && s.shared() {
			for _, rows := range commonRows {
				p.PrefetchScan(rows, kv.PrefixEnd(rows))
			}
		}
		return s.view(r, charge, fn)
	})
}

// ViewAcross is View for reading much of the graph, for as long as that takes. On FoundationDB
// the state may change between reads; crossings counts how often (kv.Store.ViewAcross).
func (s *Store) ViewAcross(ctx context.Context, fn func(*ask.View) error) (crossings int, err error) {
	return s.kv.ViewAcross(ctx, func(r kv.Reader) error { return s.view(r, nil, fn) })
}

func (s *Store) view(r kv.Reader, charge func(cost int) error, fn func(*ask.View) error) error {
	hidden, err := s.hidden.in(r)
	if err != nil {
		return fmt.Errorf("graph: reading the hidden accounts: %w", err)
	}
	return fn(s.source.View(r, hidden, charge))
}
