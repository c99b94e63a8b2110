package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"skein.blue/graph/format"
)

// Reasons for gaps besides the unreadable messages: what happened in them is
// missing, and any repo may be concerned.
const (
	outdatedCursor = "outdated_cursor" // the relay no longer had what came after our cursor
	futureCursor   = "future_cursor"   // the relay's sequence had begun anew, and an operator decided where to go on
	cursorSkipped  = "cursor_skipped"  // a cursor after the stored one was given
	sourceChanged  = "source_changed"  // another source was followed before
	liveStartCut   = "live_start_cut"  // listening live ended before the first event

	sequenceUnverified = "sequence_unverified" // the relay no longer has the last event that was applied
	sequenceRestarted  = "sequence_restarted"  // the relay's numbers began anew, and passed the cursor
)

// begin settles where to begin, by the options and by what the store knows.
func (c *Consumer) begin(ctx context.Context) error {
	stored, isStored := c.store.Cursor(c.source)
	other, changed := c.before()
	if !isStored && changed {
		c.warnOfChange(other)
	}
	if c.url != "" && c.hasFrom && changed && (!isStored || stored.Time.Unix() <= 0) { // nothing of it was applied yet
		c.unseen = &format.Gap{Reason: sourceChanged, Since: other.Time.UTC(), Suspect: true}
	}
	if c.o.Cursor == nil || isStored && c.from == stored.Seq && !stored.Future {
		c.life.blocked.Store(isStored && stored.Future)
		return nil
	}
	now := time.Now().UTC()
	var gap *format.Gap
	switch {
	case isStored && stored.Future:
		gap = &format.Gap{Reason: futureCursor, Detail: fmt.Sprintf("the relay's sequence had begun anew; an operator had it read again after seq %d", c.from)}
	case isStored && c.from > stored.Seq:
		gap = &format.Gap{Reason: cursorSkipped, Detail: fmt.Sprintf("an operator had the stream read after seq %d, and not from the stored cursor", c.from)}
	}
	if gap != nil {
		gap.After, gap.Since, gap.Time, gap.Suspect = stored.Seq, stored.Time.UTC(), now, true
		c.metrics.gap(gap)
		c.log.Warn("a gap in the stream", "reason", gap.Reason, "after_seq", int64(gap.After), "detail", gap.Detail)
	} else if isStored {
		c.log.Info("the stored cursor is replaced", "stored", int64(stored.Seq), "cursor", int64(c.from))
	}
	if err := c.store.Rewind(ctx, c.source, c.from, gap); err != nil {
		return fmt.Errorf("consumer: beginning after seq %d: %w", c.from, err)
	}
	return nil
}

// before returns, of the cursors of other sources, the one whose event is the newest.
func (c *Consumer) before() (newest format.Cursor, any bool) {
	for _, other := range c.store.Cursors() {
		if other.Source != c.source && (!any || other.Time.After(newest.Time)) {
			newest, any = other, true
		}
	}
	return newest, any
}

func (c *Consumer) warnOfChange(other format.Cursor) {
	args := []any{"other", other.Source, "other_cursor", int64(other.Seq), "starts", c.startName()}
	if other.Time.Unix() > 0 { // something of it was applied
		args = append(args, "other_time", other.Time.UTC().Format(time.RFC3339))
	}
	const same = "the store followed another source before, whose cursor says nothing about this one"
	if c.hasFrom || c.url == "" {
		c.log.Warn(same, args...)
		return
	}
	c.log.Warn(same+": what happened between that source's last event and now is missing, and will be recorded as a gap. "+
		"To leave nothing out, give --cursor 0 at the first start with another source: all that it still has is then read, and what was applied before changes nothing. "+
		"Once events have come, --cursor 0 --force-cursor still brings what is missing of repos that have not committed meanwhile; the others stay desynchronized", args...)
}

func (c *Consumer) startName() string {
	switch {
	case c.hasFrom:
		return fmt.Sprintf("after seq %d", c.from)
	case c.o.Frames != "":
		return "at the file's beginning"
	}
	return "live"
}

// listen notes that a source without a cursor is listened to live from now on,
// and as a gap what was missed since another source, or an earlier attempt at it,
// ended. The applier must be at rest.
func (c *Consumer) listen(ctx context.Context) error {
	now := time.Now().UTC()
	var gap *format.Gap
	if since, listening := c.store.LiveSince(c.source); listening {
		gap = &format.Gap{Reason: liveStartCut, Since: since.UTC(), Detail: "the connection, or the process, ended before the first event came"}
	} else if other, changed := c.before(); changed {
		gap = &format.Gap{Reason: sourceChanged, Since: other.Time.UTC(), Detail: "followed " + other.Source + " before"}
	}
	if gap != nil {
		gap.Time, gap.Suspect = now, true
		c.metrics.gap(gap)
		c.say("gap "+gap.Reason, slog.LevelWarn, "a gap in the stream", "reason", gap.Reason, "since", gap.Since.Format(time.RFC3339), "detail", gap.Detail)
	}
	if err := c.store.SetLive(ctx, c.source, now, gap); err != nil {
		return fmt.Errorf("%w: beginning live: %w", errStore, err)
	}
	return nil
}

// futureCursor is what follows when the relay has never reached our cursor: its
// sequence has begun anew, or it is not the relay that it was. Nothing is skipped
// on our own account, also not when its new numbers have passed our cursor.
func (c *Consumer) futureCursor(ctx context.Context, err error) error {
	if derr := c.feed.drain(); derr != nil { // the store is the applier's
		return errors.Join(err, derr)
	}
	if serr := c.store.SetFuture(ctx, c.source); serr != nil {
		return fmt.Errorf("%w: %w", errStore, serr)
	}
	_, stored := c.store.Cursor(c.source)
	c.life.blocked.Store(stored)
	return err
}

// reusedWithin is by how much the time of an event may differ from that of the one that was
// applied under its number, for the sequence to be the same but for its end: a relay that is
// killed loses its last events, and gives their numbers to others.
const reusedWithin = 10 * time.Minute

// reusedBack is how many events before the cursor are read again then. What was applied before
// changes nothing.
const reusedBack = 5000

// errReused ends a session in which another event came under the number of the cursor, of
// about the same time.
var errReused = errors.New("consumer: the relay has given the number of the last event that was applied to another one: it lost its newest events")

// reused is what follows when a relay has lost its newest events, and given their numbers to
// others: the stream is read again from somewhat before, and its numbers are not compared with
// those of before. What was lost is a gap.
func (c *Consumer) reused(ctx context.Context, err error) error {
	if derr := c.feed.drain(); derr != nil { // the store is the applier's
		return errors.Join(err, derr)
	}
	c.restarted = 0 // it is said below
	stored, ok := c.store.Cursor(c.source)
	if !ok {
		return err
	}
	gap := &format.Gap{
		After: stored.Seq, Since: stored.Time.UTC(), Time: time.Now().UTC(), Reason: sequenceRestarted, Suspect: true,
		Detail: "the relay lost its newest events and gave their numbers to others; the stream is read again from somewhat before",
	}
	c.metrics.gap(gap)
	c.log.Warn("a gap in the stream", "reason", gap.Reason, "after_seq", int64(gap.After), "detail", gap.Detail)
	if serr := c.store.SetFuture(ctx, c.source); serr != nil {
		return fmt.Errorf("%w: %w", errStore, serr)
	}
	if serr := c.store.Rewind(ctx, c.source, max(stored.Seq-reusedBack, 0), gap); serr != nil {
		return fmt.Errorf("%w: %w", errStore, serr)
	}
	return err
}

// errStore marks what the store failed at: to connect again does not mend it.
var errStore = errors.New("consumer: the store failed")

// sayBlocked is how often it is said that an operator has to decide.
const sayBlocked = time.Hour

// awaitOperator waits for the end of the run: the decision is a start with
// --cursor.
func (c *Consumer) awaitOperator(ctx context.Context) error {
	if c.o.StopOnError {
		return fmt.Errorf("%w (seq %d of %s): its sequence has begun anew, or this is another relay under the same name. Check --relay, or say where to begin with --cursor: 0 is all that it still has",
			ErrBlocked, c.from, c.source)
	}
	for ticker := time.NewTicker(sayBlocked); ; {
		c.log.Error("our cursor lies in the relay's future: its sequence has begun anew, or this is another relay under the same name. "+
			"Nothing is indexed until an operator decides: check --relay, or restart with --cursor 0 --force-cursor to take all that this relay still has (what was applied before changes nothing). Queries are answered meanwhile",
			"cursor", int64(c.from))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
	}
}
