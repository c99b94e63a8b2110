package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
)

// handleVerified takes in one message, with the Verifier's ruling. An error ends the session.
// It locks only while events are held: see holding.
func (c *Consumer) handleVerified(frame []byte, ruled ruling) error {
	if c.holding.Load() {
		c.intake.Lock()
		defer c.intake.Unlock()
	}
	return c.take(frame, ruled)
}

func (c *Consumer) take(frame []byte, ruled ruling) error {
	m := &c.message
	c.bytes.Add(int64(len(frame)))
	if err := wire.Parse(frame, m); err != nil {
		return c.gap(&batch.Gap{Reason: string(wire.BadFrame)}, fmt.Sprintf("a message of %d bytes cannot be parsed", len(frame)))
	}
	c.metrics.event(m.Type)
	c.events.Add(1)
	switch m.Type {
	case wire.Error:
		return fmt.Errorf("%w: %s: %s", ErrRelay, clip(m.Name), clip(m.Text))
	case wire.Info:
		return c.info(m)
	default: // for the decoder
	}
	if m.Seq <= 0 {
		return c.accept(m, ruled)
	}
	if c.expected != nil {
		if again, err := c.verifyCursor(m); again || err != nil {
			return err
		}
	}
	if c.numbers.advance(m.Seq) {
		return c.accept(m, ruled)
	}
	v := c.numbers.offer(m.Seq, frame, ruled, time.Now())
	defer c.noteHolding()
	if v.old {
		if err := c.oldNumber(m); err != nil {
			return err
		}
	}
	if err := c.carryOut(&v); err != nil || !v.accept {
		return err
	}
	return c.accept(m, ruled)
}

func (c *Consumer) info(m *wire.Message) error {
	c.logLimited("info "+string(m.Name), slog.LevelWarn, "info message from the relay", "name", clip(m.Name), "message", clip(m.Text), "cursor", int64(c.numbers.last))
	if string(m.Name) != "OutdatedCursor" {
		return nil
	}
	c.outdated.Store(true)
	c.sessionOutdated = true
	if c.numbers.last == 0 { // the run started at seq 0, so nothing that the index had is missing
		return nil
	}
	g := &batch.Gap{Reason: outdatedCursor, Suspect: true}
	if us := c.micros.Load(); us > 0 {
		g.Since = time.UnixMicro(us).UTC()
	}
	return c.gap(g, "the relay no longer has the events after the cursor")
}

// verifyCursor checks that the relay's sequence is still the one of the cursor: the session
// requests the last applied event again, and it comes first. verifyCursor reports whether m
// is that event. If an event with another time has its number, the relay lost its newest events and
// gave their numbers to others (the times are close: errReused), or its sequence restarted and passed
// the cursor while nobody listened (errRestarted). If the event does not come, the cause is unknown (a PDS erases
// the events of a deleted account), and verifyCursor records a gap.
func (c *Consumer) verifyCursor(m *wire.Message) (again bool, err error) {
	if m.Seq < c.expected.Seq {
		return false, nil // older than requested
	}
	stored := c.expected
	c.expected = nil
	if m.Seq > stored.Seq {
		if c.sessionOutdated || m.Seq-stored.Seq >= implausibleJump {
			return false, nil // recorded already, or implausible
		}
		g := &batch.Gap{Reason: sequenceUnverified, Suspect: true, Since: stored.Time.UTC()}
		return false, c.gap(g, fmt.Sprintf("the relay no longer has the last applied event, %d: its sequence may have restarted", stored.Seq))
	}
	var at time.Time
	if at.UnmarshalText(m.Time) == nil && at.UnixMicro() != stored.Time.UnixMicro() {
		if at.Sub(stored.Time).Abs() <= reusedWithin {
			return true, errReused
		}
		c.log.Error("the relay's event at the cursor differs from the applied one", "cursor", int64(stored.Seq), "applied_time", stored.Time.UTC().Format(time.RFC3339Nano), "sent_time", at.UTC().Format(time.RFC3339Nano))
		return true, errRestarted
	}
	return true, nil
}

// carryOut does what the numbering decided about held events.
func (c *Consumer) carryOut(v *decision) error {
	drops := v.late
	if v.old {
		drops++
	}
	for range drops {
		c.metrics.drop(oldSeq)
	}
	for _, seq := range v.refuted {
		c.metrics.drop(seqJump)
		c.logLimited("refuted", slog.LevelWarn, "event dropped: implausible sequence number", "seq", int64(seq), "last", int64(c.numbers.last))
		err := c.feed.add(func(b *batch.Batch) {
			b.AddDeadLetter(batch.DeadLetter{Seq: seq, Reason: string(seqJump), Time: time.Now().UTC()})
		})
		if err != nil {
			return err
		}
	}
	if v.jumped {
		c.log.Warn("the relay's numbering jumped, and events confirmed it", "from", int64(v.from), "to", int64(c.numbers.last))
		c.metrics.jump()
	}
	for _, h := range v.frames {
		if err := wire.Parse(h.frame, &c.heldMessage); err != nil {
			return fmt.Errorf("consumer: parsing a held message: %w", err)
		}
		if v.unnumbered {
			c.heldMessage.Seq = 0
		}
		if err := c.accept(&c.heldMessage, h.ruling); err != nil {
			return err
		}
	}
	if n := drops + len(v.refuted); n > 0 && !v.accept && len(v.frames) == 0 {
		c.allDropped(n)
	}
	return nil
}

// errRestarted ends a session in which newer events come under older numbers.
var errRestarted = errors.New("consumer: the relay restarted its sequence: numbers at or below the cursor now belong to other events")

// An event with an old number that is at least restartedBy newer than the last accepted event
// is a sign of a restarted sequence; restartedEvents of them in a row prove it.
const restartedBy, restartedEvents = 10 * time.Second, 4

// oldNumber checks an event whose number the numbering calls old. Mostly such an event is a
// repetition. But not every relay says FutureCursor after it has restarted its sequence: then
// the event is newer than the last accepted one.
func (c *Consumer) oldNumber(m *wire.Message) error {
	var newest, at time.Time
	if newest.UnmarshalText(c.times.last) != nil {
		newest = time.UnixMicro(c.micros.Load())
	}
	unknown := at.UnmarshalText(m.Time) != nil || newest.Unix() <= 0 || !c.times.plausible(at)
	if unknown || at.Sub(newest) < restartedBy {
		c.restarted = 0 // a repeated event: those counted so far may have come from hosts whose clocks are ahead
		return nil
	}
	if c.restarted++; c.restarted >= restartedEvents && c.url != "" {
		return errRestarted
	}
	return nil
}

// allDroppedFor is how long every event of a stream may be dropped before that is logged as an
// error.
var allDroppedFor = time.Minute

// allDropped logs an error if every event is dropped for its number.
func (c *Consumer) allDropped(n int) {
	now := time.Now()
	if c.dropped == 0 {
		c.droppedFrom = now
	}
	c.dropped += n
	if now.Sub(c.droppedFrom) < allDroppedFor || c.dropped < 2 {
		return
	}
	c.logLimited("all dropped", slog.LevelError, "every event of the relay is dropped: all sequence numbers are at or below the cursor, or implausibly far above it. "+
		"The relay may have restarted its sequence, or the cursor may come from a damaged message: to read everything that the relay has, restart with --cursor 0 --force-cursor (events that were applied before change nothing)",
		"cursor", int64(c.numbers.last), "dropped", c.dropped, "since", c.droppedFrom.UTC().Format(time.RFC3339))
}

// logLimited logs messages that may come often: each key once in ten seconds.
func (c *Consumer) logLimited(key string, level slog.Level, message string, args ...any) {
	held, ok := c.limit.Allow(key)
	if !ok {
		return
	}
	if held > 0 {
		args = append(args, "occurrences", held+1)
	}
	c.log.Log(context.Background(), level, message, args...) //nolint:sloglint // the caller's message
}

// noteHolding sets holding if events are held.
func (c *Consumer) noteHolding() { c.holding.Store(len(c.numbers.runs) > 0) }

// settle decides about held events at the end of the stream.
func (c *Consumer) settle() error {
	c.intake.Lock()
	defer c.intake.Unlock()
	defer c.noteHolding()
	v := c.numbers.settle()
	return c.carryOut(&v)
}

// acceptHeld accepts the events that are held because no number is known yet. They are
// applied, but the cursor does not cover them.
func (c *Consumer) acceptHeld() error {
	c.intake.Lock()
	defer c.intake.Unlock()
	defer c.noteHolding()
	v := c.numbers.takeUnnumbered()
	return c.carryOut(&v)
}

// expire decides about events that were held for too long, unless a message is being taken
// in. It reports whether to reconnect.
func (c *Consumer) expire(now time.Time) (again bool) {
	if !c.holding.Load() || !c.intake.TryLock() {
		return false
	}
	defer c.intake.Unlock()
	if !c.holding.Load() { // the reading goroutine no longer locks
		return false
	}
	defer c.noteHolding()
	v := c.numbers.expire(now)
	return c.carryOut(&v) != nil || len(v.refuted) > 0 || c.ended.Load()
}

// accept adds a message to the batch. If the Verifier gave a reason, accept records the rejection
// (Decoder.Reject) instead of the message.
func (c *Consumer) accept(m *wire.Message, ruled ruling) error {
	raw := m.Time
	m.Time = c.times.usable(raw)
	isExact := bytes.Equal(raw, m.Time)
	if c.heardSince.Load() == 0 {
		if at, known := c.times.began(); known {
			c.heardSince.Store(at.UnixMicro())
		}
	}
	err := c.feed.add(func(b *batch.Batch) {
		detail := ""
		if ruled.reason == "" {
			c.decoder.Add(m, b)
		} else {
			c.decoder.Reject(m, b, ruled.reason)
			if ruled.detail != nil {
				detail = clip([]byte(ruled.detail.Error()))
			}
		}
		if !isExact {
			b.Inexact()
		}
		for _, d := range c.decoder.Drops {
			c.metrics.drop(d.Reason)
			if !d.Reason.IsFault() {
				continue
			}
			b.AddDeadLetter(batch.DeadLetter{
				Seq: m.Seq, DID: clip(m.DID), Path: clip(d.Path), Reason: string(d.Reason), Detail: detail, Time: time.Now().UTC(),
			})
		}
	})
	if err != nil {
		return err
	}
	if n := c.decoder.OtherRevs; n > c.countedRevs {
		c.metrics.otherRev()
		c.countedRevs = n
	}
	if c.restarted > 0 && m.Seq > 0 {
		c.restarted = 0
		g := &batch.Gap{Reason: sequenceRestarted, Suspect: true}
		if err := c.gap(g, "events newer than the last applied one came under numbers at or below the cursor, and were dropped"); err != nil {
			return err
		}
	}
	if m.Seq > 0 {
		c.dropped = 0
		c.seq.Store(int64(m.Seq))
		if c.o.CatchUp || c.started.Load() == 0 || c.pendingGap != nil {
			if err := c.checkTime(m.Time); err != nil {
				return err
			}
		}
		if c.o.Until > 0 && int64(m.Seq) >= c.o.Until {
			c.ended.Store(true)
		}
	}
	return nil
}

// caughtUpEvents is the number of consecutive events with times after the start of a replay that end
// it. A
// single one may come from a host whose clock is ahead; if fewer come, the silence after them
// ends the replay.
const caughtUpEvents = 4

func (c *Consumer) checkTime(text []byte) error {
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return nil //nolint:nilerr // an unreadable time counts as unknown
	}
	if c.started.Load() == 0 {
		c.started.Store(t.UnixMicro())
	}
	if c.caughtUp++; !t.After(c.runStart) {
		c.caughtUp = 0
	}
	if c.o.CatchUp && c.caughtUp >= caughtUpEvents {
		c.ended.Store(true)
	}
	if g := c.pendingGap; g != nil {
		c.pendingGap = nil
		if t.After(g.Since) {
			return c.gap(g, "the relay's first event is later than the last one of the previous source")
		}
	}
	return nil
}

// resume sets where the stream starts.
func (c *Consumer) resume(after batch.Seq) {
	c.intake.Lock()
	defer c.intake.Unlock()
	defer c.noteHolding()
	c.from, c.numbers = after, numbering{last: after}
	c.sessionOutdated = false
	c.dropped = 0
}

// gap records that events may be missing here.
func (c *Consumer) gap(g *batch.Gap, what string) error {
	g.After, g.Time, g.Detail = c.numbers.newest(), time.Now().UTC(), what
	c.metrics.gap(g)
	args := []any{"reason", g.Reason, "after_seq", int64(g.After), "detail", what}
	if !g.Since.IsZero() {
		args = append(args, "since", g.Since.UTC().Format(time.RFC3339))
	}
	c.logLimited("gap "+g.Reason, slog.LevelWarn, "a gap in the stream", args...)
	return c.feed.add(func(b *batch.Batch) {
		b.AddGap(*g)
		if !g.Suspect {
			b.AddDeadLetter(batch.DeadLetter{Seq: g.After, Reason: g.Reason, Time: g.Time})
		}
	})
}
