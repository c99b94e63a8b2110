package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/outward"
)

// Reasons for gaps, besides unreadable messages: the events in them are missing, and may
// concern any repo.
const (
	outdatedCursor = "outdated_cursor" // the relay no longer had the events after the cursor
	futureCursor   = "future_cursor"   // the relay restarted its sequence, and an operator decided where to continue
	cursorSkipped  = "cursor_skipped"  // an operator set a cursor after the stored one
	sourceChanged  = "source_changed"  // another source was followed before
	liveStartCut   = "live_start_cut"  // a live start ended before four events had confirmed the numbering

	sequenceUnverified = "sequence_unverified" // the relay no longer has the last applied event
	sequenceRestarted  = "sequence_restarted"  // the relay restarted its sequence, and the new numbers have passed the cursor
)

// noEnd is the detail of the gap after a stream that left no cursor: of another source, or in the store that was imported.
const noEnd = "a stream was followed before, and nothing says up to where. Later events are missing until repos are fetched or compared again"

// begin decides where to start, from the options and the store.
func (c *Consumer) begin(ctx context.Context) error {
	stored, isStored := c.store.Cursor(c.source)
	other, changed := c.store.Newest(c.source)
	if !isStored && changed {
		c.warnOfChange(other)
	}
	if c.url != "" && c.hasFrom && changed && (!isStored || !stored.Time.After(other.Time)) { // the last run may not have decided it
		c.pendingGap = &batch.Gap{Reason: sourceChanged, Since: other.Time.UTC(), Suspect: true}
	}
	if c.o.Cursor == nil || isStored && c.from == stored.Seq && !stored.Future {
		c.link.blocked.Store(isStored && stored.Future)
		return nil
	}
	_, live := c.store.LiveSince(c.source)
	var gap *batch.Gap
	switch {
	case isStored && stored.Future:
		gap = &batch.Gap{Reason: futureCursor, Detail: fmt.Sprintf("the relay restarted its sequence; an operator chose to continue after seq %d", c.from)}
	case !isStored && !changed && c.store.Unbroken() && (c.from > 0 || !live): // else the first event decides
		gap = &batch.Gap{Reason: liveStartCut, Detail: noEnd}
	case isStored && c.from > stored.Seq:
		gap = &batch.Gap{Reason: cursorSkipped, Detail: fmt.Sprintf("an operator chose to continue after seq %d instead of the stored cursor", c.from)}
	}
	if c.decided = gap != nil; c.decided {
		gap.After, gap.Since, gap.Suspect = stored.Seq, stored.Time.UTC(), true
		c.announce(gap)
	} else if isStored {
		c.log.Info("stored cursor replaced", "stored", int64(stored.Seq), "cursor", int64(c.from))
	}
	if err := c.store.Rewind(ctx, c.source, c.from, false, gap); err != nil {
		return fmt.Errorf("consumer: setting the cursor to seq %d: %w", c.from, err)
	}
	return nil
}

func (c *Consumer) warnOfChange(other graph.Cursor) {
	args := []any{"other", other.Source, "other_cursor", int64(other.Seq), "starts", c.startName()}
	if other.Time.Unix() > 0 { // an event of it was applied
		args = append(args, "other_time", other.Time.UTC().Format(time.RFC3339))
	}
	const same = "the store followed another source before; its cursor says nothing about this one"
	if c.hasFrom || c.url == "" {
		c.log.Warn(same, args...)
		return
	}
	c.log.Warn(same+": events between that source's last event and now are missing, and will be recorded as a gap. "+
		"To miss nothing, start with --cursor 0 the first time: skein then reads everything that the new source still has, and events that were applied before change nothing. "+
		"A restart with --cursor 0 --force-cursor still recovers repos that have no commit after this start; the others stay desynchronized", args...)
}

func (c *Consumer) startName() string {
	switch {
	case c.hasFrom:
		return fmt.Sprintf("after seq %d", c.from)
	case c.o.Frames != "":
		return "at the start of the file"
	}
	return "live"
}

// listen notes that the run now listens live to a source without a cursor. Events missed since
// another source, or an earlier live start, ended are recorded as a gap. The applying
// goroutine must be idle.
func (c *Consumer) listen(ctx context.Context) error {
	now := time.Now().UTC()
	var gap *batch.Gap
	if since, listening := c.store.LiveSince(c.source); listening {
		gap = &batch.Gap{Reason: liveStartCut, Since: since.UTC(), Suspect: true, Detail: "the last connection ended before four events had confirmed the relay's numbering, which a cursor needs; on a quiet relay that is normal. Later events are missing until repos are fetched or compared again"}
	} else if other, changed := c.store.Newest(c.source); changed {
		gap = &batch.Gap{Reason: sourceChanged, Since: other.Time.UTC(), Suspect: true, Detail: "followed " + other.Source + " before"}
	} else if c.store.Unbroken() {
		gap = &batch.Gap{Reason: liveStartCut, Suspect: true, Detail: noEnd}
	}
	isEmpty := false
	err := c.store.View(ctx, func(s *graph.View) error { n, err := s.Counts(); isEmpty = err == nil && n.Accounts == 0; return err })
	if gap != nil && isEmpty {
		gap.Time = now
		c.log.Info("starting live again; nothing is indexed yet")
	} else if gap != nil {
		c.announce(gap)
	}
	if err := errors.Join(err, c.store.SetLive(ctx, c.source, now, gap)); err != nil {
		return fmt.Errorf("%w: starting live: %w", errStore, err)
	}
	return nil
}

// futureCursor blocks the source after the relay has said, or shown, that it never reached the
// cursor: its sequence restarted, or it is another relay. The consumer never skips events on
// its own, even once the new numbers have passed the cursor.
func (c *Consumer) futureCursor(ctx context.Context, err error) error {
	if serr := c.store.SetFuture(ctx, c.source); serr != nil {
		return fmt.Errorf("%w: %w", errStore, serr)
	}
	_, stored := c.store.Cursor(c.source)
	c.link.blocked.Store(stored)
	return err
}

// reusedBack is how many events before the cursor are read again in that case. Events that
// were applied before change nothing.
const reusedBack = 5000

// reused continues after a relay has lost its newest events, and given their numbers to
// others: it reads the stream again from reusedBack events before the cursor, and treats the
// numbers as those of a new sequence. The lost events are recorded as a gap.
func (c *Consumer) reused(ctx context.Context, err error) error {
	c.sequence.restarted = 0              // the gap below records it
	stored, _ := c.store.Cursor(c.source) // its event was reused
	gap := &batch.Gap{
		After: stored.Seq, Since: stored.Time.UTC(), Reason: sequenceRestarted, Suspect: true,
		Detail: "the relay lost its newest events and reused their numbers; reading the stream again from before them",
	}
	c.announce(gap)
	if serr := c.store.Rewind(ctx, c.source, max(stored.Seq-reusedBack, 0), true, gap); serr != nil {
		return fmt.Errorf("%w: %w", errStore, serr)
	}
	return err
}

// errStore marks failures of the store, which reconnecting cannot fix.
var errStore = errors.New("consumer: the store failed")

// sayBlocked is how often to log that an operator must decide.
const sayBlocked = time.Hour

// awaitOperator waits for the end of the run. The operator decides by a restart with --cursor.
func (c *Consumer) awaitOperator(ctx context.Context) error {
	if c.o.StopOnError {
		return fmt.Errorf("%w (seq %d of %s): its sequence restarted, or this is another relay under the same name. Check --relay, or choose where to start with --cursor: 0 reads everything that it still has",
			ErrBlocked, c.from, c.source)
	}
	for {
		c.log.Error("the cursor is in the relay's future: its sequence restarted, or this is another relay under the same name. "+
			"Nothing is indexed until an operator decides: check --relay, or restart with --cursor 0 --force-cursor to read everything that this relay still has (events that were applied before change nothing). Queries are still answered",
			"cursor", int64(c.from))
		if outward.Wait(ctx, sayBlocked) != nil {
			return nil //nolint:nilerr // that is how a run ends
		}
	}
}
