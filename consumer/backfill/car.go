package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"

	"skein.blue/consumer/repo"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// A Placed says what became of a repo that was given as a file.
type Placed struct {
	DID     string `json:"did"`
	Rev     string `json:"rev"`
	Records int    `json:"records"`
	// Outcome is "placed", or why it was not: "not_newer" where the index has all of the
	// repo up to that rev already, else a graph.Outcome.
	Outcome string `json:"outcome"`
}

// PlaceCAR puts a repo that was exported into a file in place. It is put over what the
// index has where that is not complete, or older.
func (m *Manager) PlaceCAR(ctx context.Context, in io.Reader) (p Placed, err error) {
	r := m.reader()
	defer free(r)
	if err := r.Read(ctx, in, m.o.MaxRepoBytes); err != nil {
		if errors.Is(err, repo.ErrTooLarge) {
			err = m.tooLarge(err)
		}
		return p, fmt.Errorf("reading the repo: %w", err)
	}
	p = Placed{DID: string(r.DID), Rev: string(r.Rev)}
	if !m.o.Store.Owns(r.DID) {
		return p, errors.New("the repo is of another writer's partition")
	}
	var st format.RepoState
	account := func() (row *format.Resync, err error) {
		err = m.o.Store.View(ctx, func(s *ask.View) (err error) { st, _, row, err = s.Account(p.DID); return err })
		return row, err
	}
	row, err := account()
	if err != nil {
		return p, err
	}
	if row == nil && st.Complete() && st.Rev.String() >= p.Rev {
		p.Outcome = "not_newer"
		return p, nil
	}
	if row == nil {
		if err := m.Resync(ctx, "file", p.DID); err != nil {
			return p, err
		}
		if row, err = account(); err != nil || row == nil {
			return p, err
		}
	}
	ctx = context.WithoutCancel(ctx) // others' repos may be in the same write
	done := make(chan error, 1)
	m.placer.flush(ctx)
	m.placer.place(ctx, r, row.Generation, false, func(o batch.Outcome, records int, err error) {
		p.Outcome, p.Records = o.String(), records
		done <- err
	})
	m.o.Metrics.spaces(r.Spaces)
	m.placer.flush(ctx)
	err = <-done
	if err == nil && p.Outcome == batch.Placed.String() {
		m.fetched.Add(1)
		m.records.Add(int64(p.Records))
		m.mu.Lock()
		m.unpark(p.DID)
		if j := m.sched.jobs[p.DID]; j != nil && !j.running && j.index >= 0 {
			m.sched.remove(j)
		}
		m.mu.Unlock()
	}
	return p, err
}
