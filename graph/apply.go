package graph

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Apply applies a batch from the named source and stores its cursor, in as few atomic writes as
// possible. Each write stores the cursor that it reaches, and no commit is split. Apply drops
// events that were applied before, and events of partitions that this Store does not write.
func (s *Store) Apply(ctx context.Context, source string, b *batch.Batch) error {
	if source == "" || b.Archived() { // of the past: first await a turn outside the lock, where the stream's next write would wait, too
		_, _ = s.kv.ViewAcross(ctx, func(kv.Reader) error { return nil }) // an error is the write's, too
	}
	began := time.Now()
	s.writing.Lock()
	defer s.writing.Unlock()
	if len(s.lanes) == 0 { // other writers have all partitions
		return nil
	}
	if waited := int64(time.Since(began)); !b.Archived() && waited > s.waited.Load() {
		s.waited.Store(waited)
	}
	if err := errors.Join(s.refuteFirst(ctx), s.noteFirst(ctx, source, b)); err != nil {
		return err
	}
	if err := s.begin(ctx, source, b); err != nil {
		return err
	}
	errs := make([]error, len(s.lanes))
	var wg sync.WaitGroup
	for i, l := range s.lanes {
		wg.Go(func() { errs[i] = l.apply(ctx, source, b) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.countIncomplete()
	return s.lanes[0].trimNotes(ctx)
}

// TakeWait returns the longest time that a batch of the stream has waited for its turn to write since the
// last call.
func (s *Store) TakeWait() time.Duration { return time.Duration(s.waited.Swap(0)) }

// apply applies the lane's events of the batch. If a write is too large, apply spills large
// values, which may have been the reason, and divides it. It sets an event aside that is still too large alone.
func (l *lane) apply(ctx context.Context, source string, b *batch.Batch) error {
	l.pick(source, b)
	events := l.events
	looks := !b.Archived() // whether to look for deletions before a write
	if b.Archived() {
		if err := l.eraseAll(ctx); err != nil {
			return err
		}
	}
	waits := map[dict.ID]bool{}
	for from, spilledFor := 0, -1; ; {
		to := write.EndOfSegment(b, events, from, looks)
		for {
			seg := &write.Segment{Source: source, Batch: b, Events: events[from:to], Parts: l.parts, Whole: to == len(events), Stuck: l.stuck, Waits: waits}
			err := l.applySegment(ctx, seg)
			if err == nil {
				break
			}
			if ends, ok := errors.AsType[write.SegmentEndError](err); ok {
				l.writerOf(b).Abandon()
				l.store.o.Writes.Retried("erasing")
				to, looks = from+ends.Before, true
				continue
			}
			if errors.Is(err, dict.ErrStored) && (to-from > 1 || l.setAside(b.Event(int(events[from].N)), b, err)) {
				l.writerOf(b).Abandon()
				l.store.o.Writes.Retried("malformed")
				to = from + max((to-from)/2, 1)
				continue
			}
			if !errors.Is(err, kv.ErrTooLarge) || to-from <= 1 && spilledFor == from && !b.Event(int(events[from].N)).SetAside() {
				return err
			}
			if to-from <= 1 {
				spilledFor = from
			}
			l.writerOf(b).Abandon()
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

// setAside sets an event aside that needs a malformed value of the store, and reports whether it could: the repo is
// desynchronized, nothing is guessed, and the value stays as it is. It cannot for events other than commits and rows of an archive.
func (l *lane) setAside(ev *batch.Event, b *batch.Batch, err error) bool {
	if ev.Kind == batch.EventSnapshot || !ev.SetAside() {
		return false
	}
	if held, ok := l.store.limiter.Allow("malformed"); ok {
		l.store.o.Logger.Error("an event needs a malformed value of the store; its repo is desynchronized", "did", string(b.Bytes(ev.DID)), "error", err, "occurrences", held+1)
	}
	return true
}

// applySegment applies a segment in one write.
func (l *lane) applySegment(ctx context.Context, seg *write.Segment) error {
	w := l.writerOf(seg.Batch)
	w.Begin()
	for {
		most := seg.MostStrings()
		if l.store.layout.Shared() { // in transactions of their own, because other writers may need ids for the same strings
			w.AddStrings(seg)
			most = 0
		}
		if err := w.Prepare(ctx, most); err != nil {
			return err
		}
		start := time.Now()
		var out write.Result
		err := l.update(ctx, func(tx kv.Txn) (err error) {
			seg.Cursors, seg.Latest = l.cursors(seg.Source), l.latestRev(seg.Batch.Time())
			out, err = w.Attempt(tx, seg, l.counts)
			return err
		})
		erasing, isErasing := errors.AsType[write.ErasingError](err)
		m := l.store.o.Writes
		switch {
		case err == nil:
			m.Committed(time.Since(start))
			l.committed(w, seg, &out)
			return nil
		case isErasing:
			m.Retried("erasing")
			erase := l.eraseNow
			if l.modes.Queues && !seg.Batch.Archived() {
				// A slice, once in a batch, is enough for most accounts. The event of a larger one, whose repo can be fetched
				// later, does not keep those of others waiting.
				erase, seg.Waits[erasing.Actor] = l.eraseSlice, true
			}
			if err := erase(ctx, erasing.Actor); err != nil && !l.isStuck(erasing.Actor, err) {
				return err
			}
		case errors.Is(err, write.ErrFar):
			m.Retried("far") // a commit that needs too many records is set aside
		case errors.Is(err, intern.ErrNoLease):
			m.Retried("lease")
		default:
			return fmt.Errorf("graph: applying up to seq %d of %s: %w", seg.Batch.Last(), seg.Source, err)
		}
	}
}

// committed takes over the result of a committed write.
func (l *lane) committed(w *write.Writer, seg *write.Segment, out *write.Result) {
	w.Committed()
	l.store.status.Lock()
	if len(seg.Events) > 0 && seg.Batch.Event(int(seg.Events[0].N)).Kind <= batch.EventAccount {
		l.store.applied += int64(len(seg.Events))
		l.store.replays += int64(out.Replays)
	}
	l.counts = out.Totals
	if out.Cursors != nil {
		l.sources[seg.Source] = out.Cursors
	}
	for _, id := range out.Erasing {
		l.erasing[id] = true
	}
	l.store.status.Unlock()
	if notify := l.store.o.Queued; notify != nil {
		if queued := w.Queued(); len(queued) > 0 {
			notify(queued)
		}
	}
	l.notify(w.ListChanges(), out.Sets, out.Hidden)
	if m := l.store.o.Metrics; m != nil {
		for _, k := range l.store.Kinds().All {
			m.Edges.WithLabelValues(k.Name, "add").Add(float64(out.Added[k.Kind]))
			m.Edges.WithLabelValues(k.Name, "remove").Add(float64(out.Removed[k.Kind]))
		}
	}
}
