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
	"skein.blue/graph/format"
)

// handle takes one message. It returns an error if the stream is over. The lock is
// taken only where something is held: see taking.
func (c *Consumer) handle(frame []byte) error {
	if c.holding.Load() {
		c.taking.Lock()
		defer c.taking.Unlock()
	}
	return c.take(frame)
}

func (c *Consumer) take(frame []byte) error {
	m := &c.message
	c.bytes.Add(int64(len(frame)))
	if err := wire.Parse(frame, m); err != nil {
		return c.gap(&format.Gap{Reason: string(wire.BadFrame)}, fmt.Sprintf("a message of %d bytes cannot be parsed", len(frame)))
	}
	c.metrics.event(m.Type)
	c.events.Add(1)
	switch m.Type {
	case wire.Error:
		return fmt.Errorf("%w: %s: %s", ErrRelay, clip(m.Name), clip(m.Text))
	case wire.Info:
		return c.info(m)
	default: // the decoder's
	}
	if m.Seq <= 0 {
		return c.accept(m)
	}
	if c.verify != nil {
		if again, err := c.isSame(m); again || err != nil {
			return err
		}
	}
	if c.numbers.goesOn(m.Seq) {
		return c.accept(m)
	}
	v := c.numbers.offer(m.Seq, frame, time.Now())
	defer c.noteHolding()
	if v.old {
		if err := c.oldNumber(m); err != nil {
			return err
		}
	}
	if err := c.obey(&v); err != nil || !v.take {
		return err
	}
	return c.accept(m)
}

func (c *Consumer) info(m *wire.Message) error {
	c.say("info "+string(m.Name), slog.LevelWarn, "the relay says", "name", clip(m.Name), "message", clip(m.Text), "cursor", int64(c.numbers.last))
	if string(m.Name) != "OutdatedCursor" {
		return nil
	}
	c.outdated.Store(true)
	c.outdatedNow = true
	if c.numbers.last == 0 { // asked for the oldest: what came before it was never here
		return nil
	}
	g := &format.Gap{Reason: outdatedCursor, Suspect: true}
	if us := c.micros.Load(); us > 0 {
		g.Since = time.UnixMicro(us).UTC()
	}
	return c.gap(g, "the relay no longer has what came after our cursor")
}

// isSame looks whether the stream is the one that the cursor is of: the last event that was
// applied is asked for again, and comes first. It reports whether m is that event. Where
// another event has its number, the sequence has begun anew, and passed the cursor while
// nobody listened; where it does not come, it cannot be told, and a gap says so: a PDS erases
// the events of an account that is deleted.
func (c *Consumer) isSame(m *wire.Message) (again bool, err error) {
	if m.Seq < c.verify.Seq {
		return false, nil // older than was asked for
	}
	stored := c.verify
	c.verify = nil
	if m.Seq > stored.Seq {
		if c.outdatedNow || m.Seq-stored.Seq >= implausibleJump {
			return false, nil // said already, or not believed
		}
		g := &format.Gap{Reason: sequenceUnverified, Suspect: true, Since: stored.Time.UTC()}
		return false, c.gap(g, fmt.Sprintf("the relay no longer has the last event that was applied, %d: its sequence may have begun anew", stored.Seq))
	}
	var at time.Time
	if at.UnmarshalText(m.Time) == nil && at.UnixMicro() != stored.Time.UnixMicro() {
		if at.Sub(stored.Time).Abs() <= reusedWithin {
			return true, errReused
		}
		c.log.Error("the relay's event of our cursor is another one than was applied", "cursor", int64(stored.Seq), "applied_time", stored.Time.UTC().Format(time.RFC3339Nano), "sent_time", at.UTC().Format(time.RFC3339Nano))
		return true, errRestarted
	}
	return true, nil
}

// obey does what the numbering decided about the events that it held.
func (c *Consumer) obey(v *verdict) error {
	drops := v.late
	if v.old {
		drops++
	}
	for range drops {
		c.metrics.drop(oldSeq)
	}
	for _, seq := range v.refuted {
		c.metrics.drop(seqJump)
		c.say("refuted", slog.LevelWarn, "an event was dropped: its number is implausible", "seq", int64(seq), "last", int64(c.numbers.last))
		err := c.feed.add(func(b *batch.Batch) {
			b.AddDeadLetter(format.DeadLetter{Seq: seq, Reason: string(seqJump), Time: time.Now().UTC()})
		})
		if err != nil {
			return err
		}
	}
	if v.jumped {
		c.log.Warn("the relay's numbering has jumped", "from", int64(v.from), "to", int64(c.numbers.last))
		c.metrics.jump()
	}
	for _, frame := range v.frames {
		if err := wire.Parse(frame, &c.heldMessage); err != nil {
			return fmt.Errorf("consumer: reading a message that was held: %w", err)
		}
		if v.unnumbered {
			c.heldMessage.Seq = 0
		}
		if err := c.accept(&c.heldMessage); err != nil {
			return err
		}
	}
	if n := drops + len(v.refuted); n > 0 && !v.take && len(v.frames) == 0 {
		c.deaf(n)
	}
	return nil
}

// errRestarted ends a session of which newer events come under older numbers.
var errRestarted = errors.New("consumer: the relay's numbering has begun anew: events newer than the last that was applied come under numbers below the cursor")

// restartedBy is by how much an event must be newer than the last one taken for its
// old number to tell that the numbering has begun anew, and restartedEvents how many
// such there must be in a row.
const restartedBy, restartedEvents = 10 * time.Second, 4

// oldNumber looks at an event whose number lies at or below the cursor. Mostly it is
// repeated. But not every relay says FutureCursor when its sequence has begun anew:
// then the event is newer than what we have.
func (c *Consumer) oldNumber(m *wire.Message) error {
	var newest, at time.Time
	if newest.UnmarshalText(c.times.last) != nil {
		newest = time.UnixMicro(c.micros.Load())
	}
	unknown := at.UnmarshalText(m.Time) != nil || newest.Unix() <= 0 || !c.times.plausible(at)
	if unknown || at.Sub(newest) < restartedBy {
		c.restarted = 0 // repeated; among those some may come from hosts whose clocks are ahead
		return nil
	}
	if c.restarted++; c.restarted >= restartedEvents && c.url != "" {
		return errRestarted
	}
	return nil
}

// deafAfter is for how long a stream may bring nothing but events that are
// dropped, before that is called an error.
var deafAfter = time.Minute

// deaf says so where all that comes is dropped for its numbers.
func (c *Consumer) deaf(n int) {
	now := time.Now()
	if c.dropped == 0 {
		c.droppedFrom = now
	}
	c.dropped += n
	if now.Sub(c.droppedFrom) < deafAfter || c.dropped < 2 {
		return
	}
	c.say("deaf", slog.LevelError, "nothing that the relay sends is taken: all of its numbers lie at or below our cursor, or implausibly far above it. "+
		"Its numbering may have begun anew, or the cursor may come from a damaged message: to take what the relay has, restart with --cursor 0 --force-cursor (what was applied before changes nothing)",
		"cursor", int64(c.numbers.last), "dropped", c.dropped, "since", c.droppedFrom.UTC().Format(time.RFC3339))
}

// say logs what may come often: once in ten seconds.
func (c *Consumer) say(key string, level slog.Level, message string, args ...any) {
	held, ok := c.limit.Allow(key)
	if !ok {
		return
	}
	if held > 0 {
		args = append(args, "times_since_last_said", held+1)
	}
	c.log.Log(context.Background(), level, message, args...) //nolint:sloglint // it is the caller's
}

// noteHolding notes whether an event is held.
func (c *Consumer) noteHolding() { c.holding.Store(len(c.numbers.runs) > 0) }

// settle decides what is held when nothing more will come.
func (c *Consumer) settle() error {
	c.taking.Lock()
	defer c.taking.Unlock()
	defer c.noteHolding()
	v := c.numbers.settle()
	return c.obey(&v)
}

// takeHeld takes what is held for want of a number that is known, and leaves the
// numbering as it is: what is taken so is applied, and not in the cursor.
func (c *Consumer) takeHeld() error {
	c.taking.Lock()
	defer c.taking.Unlock()
	defer c.noteHolding()
	v := c.numbers.takeUnnumbered()
	return c.obey(&v)
}

// expire decides what has been held for too long, unless a message is being taken
// in. It reports whether the relay is to be asked again.
func (c *Consumer) expire(now time.Time) (again bool) {
	if !c.holding.Load() || !c.taking.TryLock() {
		return false
	}
	defer c.taking.Unlock()
	if !c.holding.Load() { // the reading goroutine goes on without the lock
		return false
	}
	defer c.noteHolding()
	v := c.numbers.expire(now)
	return c.obey(&v) != nil || len(v.refuted) > 0 || c.ended.Load()
}

// accept adds a message to the batch.
func (c *Consumer) accept(m *wire.Message) error {
	raw := m.Time
	m.Time = c.times.take(raw)
	isExact := bytes.Equal(raw, m.Time)
	if c.heard.Load() == 0 {
		if at, known := c.times.began(); known {
			c.heard.Store(at.UnixMicro())
		}
	}
	err := c.feed.add(func(b *batch.Batch) {
		c.decoder.Add(m, b)
		if !isExact {
			b.Inexact()
		}
		for _, d := range c.decoder.Drops {
			c.metrics.drop(d.Reason)
			if !d.Reason.IsFault() {
				continue
			}
			b.AddDeadLetter(format.DeadLetter{
				Seq: m.Seq, DID: clip(m.DID), Path: clip(d.Path), Reason: string(d.Reason), Time: time.Now().UTC(),
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
		g := &format.Gap{Reason: sequenceRestarted, Suspect: true}
		if err := c.gap(g, "events newer than the last came under numbers at or below the cursor, and were dropped"); err != nil {
			return err
		}
	}
	if m.Seq > 0 {
		c.dropped = 0
		c.seq.Store(int64(m.Seq))
		if c.o.CatchUp || c.started.Load() == 0 || c.unseen != nil {
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

// caughtUpEvents is how many events in a row from after the start of a replay end it. One may
// be of a host whose clock is ahead; where fewer come, the silence after them ends it.
const caughtUpEvents = 4

func (c *Consumer) checkTime(text []byte) error {
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return nil //nolint:nilerr // a time that cannot be read is not known
	}
	if c.started.Load() == 0 {
		c.started.Store(t.UnixMicro())
	}
	if c.caughtUp++; !t.After(c.begun) {
		c.caughtUp = 0
	}
	if c.o.CatchUp && c.caughtUp >= caughtUpEvents {
		c.ended.Store(true)
	}
	if g := c.unseen; g != nil {
		c.unseen = nil
		if t.After(g.Since) {
			return c.gap(g, "the relay's first event is later than the last of the source before")
		}
	}
	return nil
}

// resume sets where the stream begins.
func (c *Consumer) resume(after format.Seq) {
	c.taking.Lock()
	defer c.taking.Unlock()
	defer c.noteHolding()
	c.from, c.numbers = after, numbering{last: after}
	c.outdatedNow = false
	c.dropped = 0
}

// gap records that something may be missing here.
func (c *Consumer) gap(g *format.Gap, what string) error {
	g.After, g.Time, g.Detail = c.numbers.newest(), time.Now().UTC(), what
	c.metrics.gap(g)
	args := []any{"reason", g.Reason, "after_seq", int64(g.After), "detail", what}
	if !g.Since.IsZero() {
		args = append(args, "since", g.Since.UTC().Format(time.RFC3339))
	}
	c.say("gap "+g.Reason, slog.LevelWarn, "a gap in the stream", args...)
	return c.feed.add(func(b *batch.Batch) {
		b.AddGap(*g)
		if !g.Suspect {
			b.AddDeadLetter(format.DeadLetter{Seq: g.After, Reason: g.Reason, Time: g.Time})
		}
	})
}
