package graph

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skein.blue/intern"
	"skein.blue/internal/kv"
)

// Timing returns where the time of the writer went.
func (s *Store) Timing() (t Timing) {
	s.told.Lock()
	defer s.told.Unlock()
	for _, l := range s.lanes {
		t.add(l.timing)
	}
	return t
}

// maxSegment bounds the events of one write of a stream.
const maxSegment = 32_768

// Apply applies a batch from the named source and stores its cursor, in as few
// atomic writes as it can: the cursor of each covers just what is in it. A
// commit is never split. What was applied before is dropped, and so are the
// events of partitions that are not this Store's.
func (s *Store) Apply(ctx context.Context, source string, b *Batch) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.writers.begin(ctx, source, b); err != nil {
		return err
	}
	if len(s.lanes) == 1 {
		if err := s.lanes[0].apply(ctx, source, b); err != nil {
			return err
		}
	} else {
		errs := make([]error, len(s.lanes))
		var wg sync.WaitGroup
		for i, l := range s.lanes {
			wg.Go(func() { errs[i] = l.apply(ctx, source, b) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	s.gauges()
	return s.lanes[0].trimNotes(ctx)
}

// apply applies what the lane has in the batch. A write that is too large is
// divided, and before that, what made it so may be spilled.
func (l *lane) apply(ctx context.Context, source string, b *Batch) error {
	l.events = l.store.writers.pick(l.events[:0], l, source, b)
	events := l.events
	looks := !b.archived // for deletions, before a write
	if b.archived {
		if err := l.eraseAll(ctx); err != nil {
			return err
		}
	}
	for from, spilledFor := 0, -1; ; {
		to := endOfSegment(b, events, from, looks)
		for {
			seg := &segment{source: source, batch: b, events: events[from:to], first: l.first, whole: to == len(events)}
			err := l.applySegment(ctx, seg)
			if err == nil {
				break
			}
			if ends, ok := errors.AsType[errEnds](err); ok {
				l.store.ids.Abandon(&l.writerOf(b).strings)
				l.store.o.Writes.Retried("erasing")
				to, looks = from+ends.before, true
				continue
			}
			if !errors.Is(err, kv.ErrTooLarge) || to-from <= 1 && spilledFor == from {
				return err
			}
			if to-from <= 1 {
				spilledFor = from
			}
			l.store.ids.Abandon(&l.writerOf(b).strings)
			l.store.o.Writes.Retried("too_large")
			if err := l.spill(ctx); err != nil {
				return err
			}
			to = from + max((to-from)/2, 1)
		}
		if err := l.spill(ctx); err != nil {
			return err
		}
		if from = to; from == len(events) {
			return nil
		}
	}
}

// endOfSegment returns the end of the write that begins at from. What comes in the
// stream after the deletion of an account and is that account's is left to
// another write, which finds the account's records gone.
//
// A batch of an archive is one write, as large as its reader made it: most of its
// deletions are of accounts that have nothing, so they are looked for only once one has
// turned out to end a write (errEnds).
func endOfSegment(b *Batch, events []picked, from int, looks bool) int {
	const mostDeleted = 16
	most := maxSegment
	if b.archived {
		most = len(events)
	}
	if !looks {
		return min(from+most, len(events))
	}
	gone := map[string]bool{}
	for i := from; i < len(events); i++ {
		e := &b.events[events[i].n]
		if i-from >= most || len(gone) == mostDeleted {
			return i
		}
		if len(gone) > 0 && gone[string(b.bytes(e.did))] {
			return i
		}
		if e.kind == eventAccount && e.flags&deleted != 0 || e.kind == eventArchivedStatus && e.flags&(deleted|synced) != 0 {
			gone[string(b.bytes(e.did))] = true
		}
	}
	return len(events)
}

// applySegment applies a segment in one write, and makes ready for it what it needs.
func (l *lane) applySegment(ctx context.Context, seg *segment) error {
	w := l.writerOf(seg.batch)
	w.strings.Reset()
	for {
		if err := l.store.writers.prepare(ctx, seg, &w.strings); err != nil {
			return err
		}
		start := time.Now()
		var end time.Time
		var out outcome
		err := l.update(ctx, func(tx kv.Txn) (err error) {
			seg.cursors = l.cursors(seg.source)
			out, err = w.attempt(tx, seg, l.counts)
			end = time.Now()
			return err
		})
		erasing, isErasing := errors.AsType[errErasing](err)
		m := l.store.o.Writes
		switch {
		case err == nil:
			w.timing.Commit += time.Since(end)
			m.Committed(time.Since(start))
			l.committed(w, seg, &out)
			return nil
		case isErasing:
			m.Retried("erasing")
			if err := l.eraseNow(ctx, erasing.actor); err != nil {
				return err
			}
		case errors.Is(err, intern.ErrNoLease):
			m.Retried("lease")
		default:
			return fmt.Errorf("graph: applying up to seq %d of %s: %w", seg.batch.last, seg.source, err)
		}
	}
}

// committed takes over what the write came to.
func (l *lane) committed(w *writer, seg *segment, out *outcome) {
	w.committed()
	l.store.told.Lock()
	l.timing.add(w.timing)
	w.timing = Timing{}
	if len(seg.events) > 0 && seg.batch.events[seg.events[0].n].kind <= eventAccount {
		l.applied += int64(len(seg.events))
		l.replays += int64(w.events.replays)
	}
	l.counts = out.totals
	if out.cursors != nil {
		l.sources[seg.source] = out.cursors
	}
	if len(w.events.hidden) > 0 {
		l.store.writers.hiddenChanged(out.hiddenVersion, w.events.hidden)
	}
	for _, id := range w.events.erasing {
		l.erasing[id] = true
	}
	if out.holes != nil {
		l.holes = *out.holes
	}
	l.store.told.Unlock()
	if told := l.store.o.Queued; told != nil {
		if queued := w.resyncs.queued(); len(queued) > 0 {
			told(queued)
		}
	}
	l.tell(w.events.changes, w.edges.sets, w.events.hidden)
	if out.noted != 0 {
		l.notes.add(out.noted, len(seg.batch.dead), len(seg.batch.gaps))
	}
	if m := l.store.o.Metrics; m != nil {
		m.Replays.Add(float64(w.events.replays))
		for _, k := range l.store.Kinds().All {
			m.Edges.WithLabelValues(k.Name, "add").Add(float64(w.edges.addedOf[k.Kind]))
			m.Edges.WithLabelValues(k.Name, "remove").Add(float64(w.edges.removedOf[k.Kind]))
		}
	}
}
