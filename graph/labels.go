package graph

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/internal/kv"
)

// labels are what labelers say. Its methods are Store's.
type labels struct{ *core }

// OwnsLabels reports whether this process writes the labels: the writer of the first partition does.
func (s *labels) OwnsLabels() bool { return s.ownsPart(0) }

// Labelers returns how far each labeler is read.
func (s *labels) Labelers(ctx context.Context) (all []format.Labeler, err error) {
	err = s.kv.View(ctx, func(r kv.Reader) (err error) { all, err = read.Labelers(r); return err })
	return all, err
}

// ApplyLabels writes labels of a labeler, in the order of its stream, and its state after them, in one
// atomic write. If they do not fit into one, it divides them; all writes but the last then have the
// state of before, so that the rest comes again after a crash. Labels that expire by now are not live.
func (s *labels) ApplyLabels(ctx context.Context, now time.Time, labels []batch.Label, before, after format.Labeler) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.OwnsLabels() {
		return errors.New("graph: another process writes the labels")
	}
	l := s.lanes[0]
	for n := len(labels); ; {
		state := after
		if n < len(labels) {
			state = before
		}
		err := l.applyLabels(ctx, now, labels[:n], &state)
		switch {
		case err == nil:
			if labels, n = labels[n:], len(labels)-n; n == 0 {
				return nil
			}
		case errors.Is(err, kv.ErrTooLarge) && n > 1:
			l.w.Abandon()
			s.o.Writes.Retried("too_large")
			n /= 2
		default:
			return err
		}
	}
}

// applyLabels makes one write of labels.
func (l *lane) applyLabels(ctx context.Context, now time.Time, labels []batch.Label, state *format.Labeler) error {
	for {
		l.w.Begin()
		l.w.AddLabels(labels)
		if err := l.w.Prepare(ctx, 2*len(labels)); err != nil {
			return err
		}
		var out write.Result
		err := l.update(ctx, func(tx kv.Txn) (err error) {
			out, err = l.w.AttemptLabels(tx, labels, state, now.UnixMicro(), l.counts)
			return err
		})
		switch {
		case err == nil:
			l.w.LabelsCommitted()
			l.store.status.Lock()
			l.counts = out.Totals
			l.store.status.Unlock()
			l.notify(nil, out.Sets, nil)
			return l.spill(ctx)
		case errors.Is(err, intern.ErrNoLease):
			l.store.o.Writes.Retried("lease")
		default:
			return fmt.Errorf("graph: writing labels of %s: %w", state.Name, err)
		}
	}
}

// expireAtOnce is how many labels one write marks as expired.
const expireAtOnce = 1000

// ExpireLabels removes up to a thousand labels that have expired by now from their sets, and reports whether
// there may be more. It does nothing in a process that does not write the labels.
func (s *labels) ExpireLabels(ctx context.Context, now time.Time) (more bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.OwnsLabels() {
		return false, nil
	}
	l := s.lanes[0]
	lo, hi := format.ExpiryKeys(now.UnixMicro())
	due := false
	err = s.kv.View(ctx, func(r kv.Reader) error {
		return r.Scan(lo, hi, false, func(_, _ []byte) (bool, error) { due = true; return false, nil })
	})
	if err != nil || !due {
		return false, err
	}
	for most := expireAtOnce; ; most /= 2 {
		var sets []write.SetChange
		found := 0
		err := l.update(ctx, func(tx kv.Txn) (err error) {
			sets, found, err = l.w.ExpireLabels(tx, now.UnixMicro(), most)
			return err
		})
		switch {
		case err == nil:
			l.notify(nil, sets, nil)
			return found == most, l.spill(ctx)
		case !errors.Is(err, kv.ErrTooLarge) || most == 1:
			return false, fmt.Errorf("graph: expiring labels: %w", err)
		}
		s.o.Writes.Retried("too_large")
	}
}
