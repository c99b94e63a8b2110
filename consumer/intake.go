package consumer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/internal/say"
)

// intake takes in the messages of a source: what the sequence accepts goes to the feed.
type intake struct {
	o        Options
	url      string // of the relay; "" without one
	log      *slog.Logger
	metrics  *Metrics
	feed     *feed
	progress progress
	ended    atomic.Bool // Until or CatchUp was reached, or silence ended the replay

	// Owned by the reading goroutine.
	runStart    time.Time
	from        batch.Seq  // start after this
	decided     bool       // begin recorded a gap: an operator chose where to start
	pendingGap  *batch.Gap // recorded if one of the first two events is newer than the last event of another source
	overlapping int        // how many of the first events were not
	caughtUp    int        // events in a row that are newer than the start of the run
	heard       time.Time  // when the first events since the start or the newest hole were made; zero until firstEvents have come
	decoder     wire.Decoder
	message     wire.Message
	held        wire.Message
	limit       say.Limiter

	// holding is set while events are held because their sequence numbers are doubtful.
	// Only the reading goroutine sets it, and works without a lock while it is not set.
	// While it is set, the reading goroutine locks deciding for each message, and the goroutine
	// session.watch for the decision about events that were held for too long.
	deciding sync.Mutex
	holding  atomic.Bool
	sequence sequence
}

// handle takes in one message, with the Verifier's ruling. An error ends the session.
// It locks only while events are held: see holding.
func (c *intake) handle(frame []byte, ruled proof.Ruling) error {
	if c.holding.Load() {
		c.deciding.Lock()
		defer c.deciding.Unlock()
	}
	m := &c.message
	c.progress.bytes.Add(int64(len(frame)))
	if err := wire.Parse(frame, m); err != nil {
		return c.gap(batch.Gap{Reason: string(wire.BadFrame), Detail: fmt.Sprintf("a message of %d bytes cannot be parsed", len(frame))})
	}
	c.metrics.events[m.Type].Inc()
	c.progress.events.Add(1)
	switch m.Type {
	case wire.Error:
		return fmt.Errorf("%w: %s: %s", ErrRelay, say.Short(m.Name), say.Short(m.Text))
	case wire.Info:
		return c.info(m)
	default: // for the decoder
	}
	if m.Seq <= 0 {
		return c.accept(m, ruled)
	}
	again, missing, err := c.sequence.verify(m)
	switch {
	case errors.Is(err, errRestarted):
		c.log.Error("the relay's event at the cursor differs from the applied one", "error", err)
		return err
	case again || err != nil:
		return err
	case missing != nil:
		if err := c.gap(*missing); err != nil {
			return err
		}
	}
	if c.sequence.numbers.advance(m.Seq) {
		return c.accept(m, ruled)
	}
	v := c.sequence.numbers.offer(m.Seq, frame, ruled, time.Now())
	defer c.noteHolding()
	if v.old && c.sequence.repeats(m, c.progress.micros.Load()) && c.url != "" {
		return errRestarted
	}
	if err := c.carryOut(&v); err != nil || !v.accept {
		return err
	}
	return c.accept(m, ruled)
}

func (c *intake) info(m *wire.Message) error {
	c.warn("info "+string(m.Name), "info message from the relay", "name", say.Short(m.Name), "message", say.Short(m.Text), "cursor", int64(c.sequence.numbers.last))
	if string(m.Name) != "OutdatedCursor" {
		return nil
	}
	c.progress.outdated.Store(true)
	c.sequence.outdated = true
	if c.sequence.numbers.last == 0 { // the run started at seq 0: the first event decides
		return nil
	}
	return c.gap(batch.Gap{
		Reason: outdatedCursor, Suspect: true, Since: timeOf(&c.progress.micros).UTC(),
		Detail: "the relay no longer has the events after the cursor",
	})
}

// carryOut does what the numbering decided about held events.
func (c *intake) carryOut(v *decision) error {
	if v.old {
		c.metrics.drop(oldSeq)
	}
	for _, seq := range v.refuted {
		c.metrics.drop(seqJump)
		c.warn("refuted", "event dropped: implausible sequence number", "seq", int64(seq), "last", int64(c.sequence.numbers.last))
		err := c.feed.add(func(b *batch.Batch) {
			b.AddDeadLetter(batch.DeadLetter{Seq: seq, Reason: string(seqJump), Time: time.Now().UTC()})
		})
		if err != nil {
			return err
		}
	}
	if v.jumped {
		c.log.Warn("the relay's numbering jumped, and events confirmed it", "from", int64(v.from), "to", int64(c.sequence.numbers.last))
		c.metrics.Jumps.Inc()
	}
	if len(v.frames) > 0 && !v.unnumbered {
		if missing := c.sequence.missing(v.frames[0].seq); missing != nil {
			if err := c.gap(*missing); err != nil {
				return err
			}
		}
	}
	for _, h := range v.frames {
		if err := wire.Parse(h.frame, &c.held); err != nil {
			return fmt.Errorf("consumer: parsing a held message: %w", err)
		}
		if v.unnumbered {
			c.held.Seq = 0
		}
		if err := c.accept(&c.held, h.ruling); err != nil {
			return err
		}
	}
	return nil
}

// warn logs messages that may come often: each key once in ten seconds.
func (c *intake) warn(key, message string, args ...any) {
	if held, ok := c.limit.Allow(key); ok {
		c.log.Warn(message, append(args, "occurrences", held+1)...) //nolint:sloglint // the caller's message
	}
}

// noteHolding sets holding if events are held.
func (c *intake) noteHolding() { c.holding.Store(len(c.sequence.numbers.held) > 0) }

// decide decides about held events.
func (c *intake) decide(how func(*numbering) decision) error {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	defer c.noteHolding()
	v := how(&c.sequence.numbers)
	return c.carryOut(&v)
}

// expire decides about events that were held for too long, unless a message is being taken
// in. It reports whether to reconnect.
func (c *intake) expire(now time.Time) (again bool) {
	if !c.holding.Load() || !c.deciding.TryLock() {
		return false
	}
	defer c.deciding.Unlock()
	if !c.holding.Load() { // the reading goroutine no longer locks
		return false
	}
	defer c.noteHolding()
	v := c.sequence.numbers.expire(now)
	return c.carryOut(&v) != nil || len(v.refuted) > 0 || c.ended.Load()
}

// accept adds a message to the batch. If the Verifier gave a reason, accept records the rejection
// (Decoder.Reject) instead of the message.
func (c *intake) accept(m *wire.Message, ruled proof.Ruling) error {
	raw := m.Time
	m.Time = c.sequence.times.usable(raw)
	isExact := bytes.Equal(raw, m.Time)
	if c.progress.heardSince.Load() == 0 {
		if at, known := c.sequence.times.began(); known {
			c.progress.heardSince.Store(at.UnixMicro())
		}
	}
	if c.heard.IsZero() && len(c.sequence.times.first) == firstEvents { // few hosts cannot forge it
		c.heard, _ = c.sequence.times.began()
	}
	err := c.feed.add(func(b *batch.Batch) {
		b.Heard = c.heard
		detail := ""
		switch {
		case ruled.Skip:
			c.decoder.Drops = c.decoder.Drops[:0]
		case ruled.Reason == "":
			c.decoder.Add(m, b)
		default:
			c.decoder.Reject(m, b, ruled.Reason)
			if ruled.Detail != nil {
				detail = say.Short(ruled.Detail.Error())
			}
		}
		if m.Seq > 0 {
			b.Seen(m.Seq, m.Time)
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
				Seq: m.Seq, DID: say.Short(m.DID), Path: say.Short(d.Path), Reason: string(d.Reason), Detail: detail, Time: time.Now().UTC(),
			})
		}
	})
	if err != nil {
		return err
	}
	if m.Seq == 0 {
		return nil
	}
	if c.sequence.restarted > 0 {
		c.sequence.restarted = 0
		err := c.gap(batch.Gap{
			Reason: sequenceRestarted, Suspect: true,
			Detail: "events newer than the last applied one came under numbers at or below the cursor, and were dropped",
		})
		if err != nil {
			return err
		}
	}
	c.progress.seq.Store(int64(m.Seq))
	if c.o.CatchUp || c.pendingGap != nil {
		if err := c.checkTime(m.Time); err != nil {
			return err
		}
	}
	if c.o.Until > 0 && int64(m.Seq) >= c.o.Until {
		c.ended.Store(true)
	}
	return nil
}

// caughtUpEvents is the number of consecutive events with times after the start of a replay that end
// it. A
// single one may come from a host whose clock is ahead; if fewer come, the silence after them
// ends the replay.
const caughtUpEvents = 4

func (c *intake) checkTime(text []byte) error {
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return nil //nolint:nilerr // an unreadable time counts as unknown
	}
	if c.caughtUp++; !t.After(c.runStart) {
		c.caughtUp = 0
	}
	if c.o.CatchUp && c.caughtUp >= caughtUpEvents {
		c.ended.Store(true)
	}
	g := c.pendingGap
	if g == nil {
		return nil
	}
	if t.After(g.Since) {
		c.pendingGap = nil
		g.Detail = "one of the relay's first two events is later than the last one of the previous source"
		return c.gap(*g)
	}
	if c.overlapping++; c.overlapping == 2 { // one may come from a host whose clock is behind
		c.pendingGap = nil
	}
	return nil
}

// resume sets where the stream starts.
func (c *intake) resume(after batch.Seq) {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	defer c.noteHolding()
	c.from = after
	c.sequence.numbers, c.sequence.outdated = numbering{last: after}, false
}

// gap records that events may be missing here.
func (c *intake) gap(g batch.Gap) error {
	g.After = cmp.Or(g.After, c.sequence.numbers.newest())
	c.announce(&g)
	return c.feed.add(func(b *batch.Batch) {
		b.AddGap(g)
		b.Heard = c.heard // not of before the gap
		if !g.Suspect {
			b.AddDeadLetter(batch.DeadLetter{Seq: g.After, Reason: g.Reason, Time: g.Time})
		}
	})
}

// announce counts and logs a gap, whose time is now.
func (c *intake) announce(g *batch.Gap) {
	g.Time = time.Now().UTC()
	c.metrics.Gaps.Inc()
	if !g.Suspect { // an unreadable message
		c.metrics.drop(wire.Reason(g.Reason))
	} else {
		c.heard, c.sequence.times.first, c.sequence.times.arrived = time.Time{}, nil, time.Time{}
	}
	args := []any{"reason", g.Reason, "after_seq", int64(g.After), "detail", g.Detail}
	if !g.Since.IsZero() {
		args = append(args, "since", g.Since.UTC().Format(time.RFC3339))
	}
	c.warn("gap "+g.Reason, "a gap in the stream", args...)
}

// lost records an unreadable message.
func (c *intake) lost(reason wire.Reason, what string) error {
	c.deciding.Lock()
	defer c.deciding.Unlock()
	return c.gap(batch.Gap{Reason: string(reason), Detail: what})
}
