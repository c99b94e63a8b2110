package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"

	"skein.blue/consumer/repo"
	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
)

// A Placed is the outcome for a repo from a file.
type Placed struct {
	DID     string `json:"did"`
	Rev     string `json:"rev"`
	Records int    `json:"records"`
	// Outcome is "placed", or the reason why not: "not_newer" if the index already has
	// the whole repo up to that rev, else a batch.Outcome.
	Outcome string `json:"outcome"`
}

// PlaceCAR puts a repo from an exported file in place, unless the index has a complete
// state that is at least as new.
func (m *Manager) PlaceCAR(ctx context.Context, in io.Reader) (p Placed, err error) {
	f := m.fetcher
	r := f.reader()
	defer r.Release()
	if err := r.Read(ctx, in, m.o.MaxRepoBytes); err != nil {
		if errors.Is(err, repo.ErrTooLarge) {
			err = f.tooLarge(err)
		}
		return p, fmt.Errorf("reading the repo: %w", err)
	}
	p = Placed{DID: string(r.DID), Rev: string(r.Rev)}
	if m.o.Verifier != nil {
		if reason := m.o.Verifier.VerifyRepo(ctx, p.DID, r.Commit); reason != "" {
			return p, fmt.Errorf("the repo is not believed (--verify full): %s", reason)
		}
	}
	if !m.o.Store.Owns(r.DID) {
		return p, errors.New("the repo is in the partition of another writer")
	}
	st, _, row, err := m.o.account(ctx, p.DID)
	if err != nil {
		return p, err
	}
	if row == nil && st.Complete() && st.Rev.String() >= p.Rev {
		p.Outcome = "not_newer"
		return p, nil
	}
	if row == nil {
		if err := m.Resync(ctx, batch.Cause{Reason: "file"}, p.DID); err != nil {
			return p, err
		}
		if _, _, row, err = m.o.account(ctx, p.DID); err != nil || row == nil {
			return p, err
		}
	}
	ctx = context.WithoutCancel(ctx) // the same write may hold repos of other callers
	done := make(chan error, 1)
	f.placer.flush(ctx)
	f.placer.place(ctx, &fetchedRepo{r, row.Generation, false, nil}, func(o batch.Outcome, records int, err error) {
		p.Outcome, p.Records = o.String(), records
		done <- err
	})
	m.o.Metrics.dropped(wire.SpaceSubject, r.Spaces)
	f.placer.flush(ctx)
	err = <-done
	switch {
	case err != nil:
	case p.Outcome == batch.Superseded.String():
		err = errors.New("the account has changed meanwhile, or has so many other records that these are erased first; send the file again in a minute")
	case p.Outcome == batch.Placed.String():
		f.fetched.Add(1)
		f.records.Add(int64(p.Records))
		m.queue.placedByHand(p.DID)
	}
	return p, err
}
