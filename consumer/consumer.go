// Package consumer reads the firehose: it connects to a relay, or reads a file
// of recorded frames, keeps the order of the stream, notices gaps, and hands
// what it decoded to the graph in batches. It knows nothing of how the graph
// is stored, and answers no questions.
//
// Two goroutines do the work: one reads and decodes (Consumer.handle), one
// applies (feed.run). The firehose is the log: what was not committed is asked
// for again, by the cursor that is committed with the data.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"skein/consumer/wire"
	"skein/graph"
)

// ErrRelay is wrapped by the error that an error frame of the relay becomes.
var ErrRelay = errors.New("consumer: the relay ended the stream")

// ErrCursorStored is returned where a cursor was given, but one is stored.
var ErrCursorStored = errors.New("consumer: a cursor is stored already")

// Options say what is consumed.
type Options struct {
	// Relay is where to connect, unless Frames is set. See ParseRelay.
	Relay string
	// Source, if set, is the name under which the cursor is kept, in place of the
	// relay's host.
	Source string
	// Frames is a .frames file to read instead.
	Frames string
	// Read, if set, is called instead of reading either: it hands each message
	// to handle, in order, and returns handle's error. Relay still names the
	// source.
	Read func(handle func(frame []byte) error) error
	// Rate slows the reading of Frames down to so many a second. 0: no limit.
	Rate float64
	// Cursor is where to begin: the first event applied has a greater seq. nil
	// means the stored cursor, and if there is none, live (a file: its start).
	Cursor *int64
	// ForceCursor allows Cursor where a cursor is stored.
	ForceCursor bool
	// Until ends the run at the first event with this seq or a greater one,
	// inclusive. 0: no end.
	Until int64
	// Idle ends the run after so much silence, CatchUp at an event that is
	// newer than the start of the run. Both are for replays.
	Idle    time.Duration
	CatchUp bool
	// Watchdog reconnects after so long without a message or a pong. 0: never.
	Watchdog time.Duration
	// MinBackoff and MaxBackoff bound the wait between connections. 0: 1 s, 1 min.
	MinBackoff, MaxBackoff time.Duration
	// StopOnError ends the run when the relay sends an error frame.
	StopOnError bool
	// Committed, if set, is told for some of the events when they arrived, and
	// how many events, it and those after it, that stands for. It is called once
	// they can be queried.
	Committed func(arrived time.Time, events int)
	// UserAgent is sent to the relay.
	UserAgent string

	Logger  *slog.Logger
	Metrics *Metrics
}

// A Consumer consumes one source. Use New, then Run, once.
type Consumer struct {
	o       Options
	store   *graph.Store
	source  string
	url     string
	log     *slog.Logger
	metrics *Metrics
	feed    *feed
	begun   time.Time

	// Of the reading goroutine.
	decoder     wire.Decoder
	message     wire.Message
	from        graph.Seq // begin after this; live if hasFrom is false
	hasFrom     bool
	last        graph.Seq // the last seq taken
	countedOps  wire.Counts
	ended       bool        // Until or CatchUp was reached
	silence     atomic.Bool // the session ended by silence, and with it the replay
	waiting     atomic.Bool // for the relay, and not for the store
	held        []byte      // an event whose seq is implausible, until the next confirms it
	heldSeq     graph.Seq
	heldMessage wire.Message

	// For Progress.
	events  atomic.Int64
	bytes   atomic.Int64
	size    atomic.Int64
	seq     atomic.Int64
	applied atomic.Int64
	micros  atomic.Int64 // event time of the last applied
	started atomic.Int64 // event time of the first, in Unix microseconds

	outdated atomic.Bool
}

// New returns a Consumer that will write to store, and checks the cursor
// options against it. The store's writer is the Consumer from here on.
func New(store *graph.Store, o Options) (*Consumer, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = time.Second
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = time.Minute
	}
	c := &Consumer{o: o, store: store, metrics: o.Metrics, feed: newFeed()}
	c.decoder.Owns = store.Owns
	var err error
	if o.Frames != "" {
		c.source, err = fileSource(o.Frames)
	} else {
		c.source, c.url, err = ParseRelay(o.Relay)
	}
	if err != nil {
		return nil, err
	}
	if o.Source != "" {
		c.source = o.Source
	}
	c.log = o.Logger.With("component", "consumer", "relay", c.source)
	stored, isStored := store.Cursor(c.source)
	switch {
	case o.Cursor != nil && *o.Cursor < 0:
		return nil, fmt.Errorf("consumer: cursor %d is negative", *o.Cursor)
	case o.Cursor != nil && isStored && !o.ForceCursor && graph.Seq(*o.Cursor) != stored.Seq:
		return nil, fmt.Errorf("%w: %s was applied up to seq %d; leave --cursor out to go on from there, or add --force-cursor to begin after %d instead",
			ErrCursorStored, c.source, stored.Seq, *o.Cursor)
	case o.Cursor != nil:
		c.from, c.hasFrom = graph.Seq(*o.Cursor), true
	case isStored:
		c.from, c.hasFrom = stored.Seq, true
	}
	if isStored {
		c.micros.Store(stored.Time.UnixMicro())
		c.applied.Store(int64(stored.Seq))
	}
	return c, nil
}

// Source returns the name under which the cursor is kept: the relay's host, or
// the file's absolute path.
func (c *Consumer) Source() string { return c.source }

// Run consumes until ctx ends (then it returns nil, all that was read being
// committed), until the end that Options ask for, or until something fails
// that trying again does not mend.
func (c *Consumer) Run(ctx context.Context) error {
	c.begun = time.Now()
	if err := c.begin(ctx); err != nil {
		return err
	}
	// What was read is committed also when ctx has ended.
	applyCtx, stopApplying := context.WithCancel(context.WithoutCancel(ctx))
	defer stopApplying()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, stopApplying) })()
	applied := make(chan error, 1)
	ctx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	go func() {
		err := c.feed.run(applyCtx, c.apply, c.idle)
		if err != nil {
			stopReading() // a silent relay would hide it
		}
		applied <- err
	}()
	var err error
	switch {
	case c.o.Read != nil:
		c.resume(c.from)
		err = c.o.Read(c.handle)
		c.metrics.ops(&c.decoder.Ops, &c.countedOps)
	case c.o.Frames != "":
		err = c.readFile(ctx)
	default:
		err = c.readRelay(ctx)
	}
	if err == nil && c.held != nil && (c.o.Frames != "" || c.o.Read != nil) {
		err = c.release() // the last of a file: nothing refutes it
	}
	c.feed.close()
	if applyErr := <-applied; applyErr != nil {
		return applyErr
	}
	return err
}

// drainTime is how long what was read may take to be committed once the run is
// to end. What is not is read again at the next start.
const drainTime = 7 * time.Second

// begin settles where to begin.
func (c *Consumer) begin(ctx context.Context) error {
	stored, isStored := c.store.Cursor(c.source)
	if !isStored {
		for _, other := range c.store.Cursors() {
			c.log.Warn("the store has a cursor of another source, which says nothing about this one",
				"other", other.Source, "cursor", int64(other.Seq), "starts", c.startName())
		}
	}
	if c.o.Cursor == nil || isStored && c.from == stored.Seq && !stored.Future {
		return nil
	}
	if isStored {
		c.log.Info("the stored cursor is replaced", "stored", int64(stored.Seq), "cursor", int64(c.from))
	}
	return c.store.Rewind(ctx, c.source, c.from)
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

// apply commits a batch. It is the applier's.
func (c *Consumer) apply(ctx context.Context, q *queued) error {
	b := &q.batch
	if err := c.store.Apply(ctx, c.source, b); err != nil {
		return err
	}
	q.eachMark(func(arrived time.Time, events int) {
		c.metrics.queryable(time.Since(arrived))
		if c.o.Committed != nil {
			c.o.Committed(arrived, events)
		}
	})
	if b.Last() != 0 {
		c.applied.Store(int64(b.Last()))
		if t := b.Time(); !t.IsZero() {
			c.micros.Store(t.UnixMicro())
		}
		c.metrics.cursor(int64(b.Last()))
	}
	return nil
}

// idle is called by the applier between batches.
func (c *Consumer) idle(ctx context.Context) (more bool, err error) {
	if !c.store.Erasing() {
		return false, nil
	}
	if err := c.store.EraseSlice(ctx); err != nil {
		return false, err
	}
	return c.store.Erasing(), nil
}

// handle takes one message. It returns an error if the stream is over.
func (c *Consumer) handle(frame []byte) error {
	m := &c.message
	c.bytes.Add(int64(len(frame)))
	if err := wire.Parse(frame, m); err != nil {
		return c.gap(wire.BadFrame, fmt.Sprintf("a message of %d bytes cannot be parsed", len(frame)))
	}
	c.metrics.event(m.Type)
	c.events.Add(1)
	switch m.Type {
	case wire.Error:
		return fmt.Errorf("%w: %s: %s", ErrRelay, clip(m.Name), clip(m.Text))
	case wire.Info:
		c.log.Warn("the relay says", "name", clip(m.Name), "message", clip(m.Text), "cursor", int64(c.last))
		if string(m.Name) == "OutdatedCursor" {
			c.outdated.Store(true)
			return c.gap("outdated_cursor", "the relay no longer has what came after our cursor")
		}
		return nil
	default: // the decoder's
	}
	if m.Seq > 0 {
		if take, err := c.order(m.Seq, frame); err != nil || !take {
			return err
		}
	}
	return c.accept(m)
}

// implausibleJump is a distance that no relay's numbering jumps in one step.
const implausibleJump = 1_000_000

// order reports whether an event with this seq is to be taken now. What is
// repeated or older is dropped; holes are no loss. But an event that jumps
// implausibly far is held back until the next one confirms it: to believe a
// damaged seq would be to drop all that follows, and to store it as cursor.
func (c *Consumer) order(seq graph.Seq, frame []byte) (take bool, err error) {
	if seq <= c.last || c.held != nil && seq == c.heldSeq {
		c.metrics.drop(oldSeq)
		return false, nil
	}
	if c.held != nil {
		if seq > c.heldSeq {
			err = c.release()
		} else {
			err = c.refute()
		}
		if err != nil {
			return false, err
		}
	}
	if c.last > 0 && seq-c.last >= implausibleJump {
		c.held, c.heldSeq = append(c.held[:0:0], frame...), seq
		return false, nil
	}
	c.last = seq
	return true, nil
}

// release takes the event that was held.
func (c *Consumer) release() error {
	frame := c.held
	c.log.Warn("the relay's numbering has jumped", "from", int64(c.last), "to", int64(c.heldSeq))
	c.metrics.jump()
	c.held, c.last = nil, c.heldSeq
	if err := wire.Parse(frame, &c.heldMessage); err != nil {
		return err
	}
	return c.accept(&c.heldMessage)
}

// refute drops the event that was held: the stream goes on where it was.
func (c *Consumer) refute() error {
	c.held = nil
	c.metrics.drop(seqJump)
	return c.feed.add(func(b *graph.Batch) {
		b.AddDeadLetter(graph.DeadLetter{Seq: c.heldSeq, Reason: string(seqJump), Time: time.Now().UTC()})
	})
}

// accept adds a message to the batch.
func (c *Consumer) accept(m *wire.Message) error {
	err := c.feed.add(func(b *graph.Batch) {
		c.decoder.Add(m, b)
		for _, d := range c.decoder.Drops {
			c.metrics.drop(d.Reason)
			b.AddDeadLetter(graph.DeadLetter{
				Seq: m.Seq, DID: clip(m.DID), Path: clip(d.Path), Reason: string(d.Reason), Time: time.Now().UTC(),
			})
		}
	})
	if err != nil {
		return err
	}
	if m.Seq > 0 {
		c.seq.Store(int64(m.Seq))
		if c.o.CatchUp || c.started.Load() == 0 {
			c.checkTime(m.Time)
		}
		if c.o.Until > 0 && int64(m.Seq) >= c.o.Until {
			c.ended = true
		}
	}
	return nil
}

func (c *Consumer) checkTime(text []byte) {
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return
	}
	if c.started.Load() == 0 {
		c.started.Store(t.UnixMicro())
	}
	if c.o.CatchUp && t.After(c.begun) {
		c.ended = true
	}
}

// resume sets where the stream begins.
func (c *Consumer) resume(after graph.Seq) { c.from, c.last, c.held = after, after, nil }

// gap records that something may be missing here.
func (c *Consumer) gap(reason wire.Reason, what string) error {
	c.metrics.gap(reason)
	c.log.Warn("a gap in the stream", "reason", string(reason), "after_seq", int64(c.last), "detail", what)
	return c.feed.add(func(b *graph.Batch) {
		now := time.Now().UTC()
		b.AddGap(graph.Gap{After: c.last, Reason: string(reason), Time: now})
		if reason != "outdated_cursor" {
			b.AddDeadLetter(graph.DeadLetter{Seq: c.last, Reason: string(reason), Time: now})
		}
	})
}

// clip makes a string of bytes from outside, of a bearable length.
func clip(b []byte) string {
	const most = 512
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}

// Ops returns how many operations on indexed collections were decoded. It is
// for after Run.
func (c *Consumer) Ops() (n int64) {
	for _, kinds := range c.decoder.Ops {
		for _, ops := range kinds {
			n += int64(ops)
		}
	}
	return n
}

// Progress is how far a Consumer has come.
type Progress struct {
	Events  int64     // messages read
	Bytes   int64     // of messages read
	Size    int64     // bytes of the file, 0 if it is none
	Seq     int64     // the last read
	Applied int64     // the last committed
	Time    time.Time // of the last event committed
	First   time.Time // of the first event read

	Outdated bool // the relay once no longer had what came next
}

// Progress returns how far the Consumer has come. Any goroutine may call it.
func (c *Consumer) Progress() Progress {
	p := Progress{
		Events: c.events.Load(), Bytes: c.bytes.Load(), Size: c.size.Load(), Seq: c.seq.Load(), Applied: c.applied.Load(),
		Outdated: c.outdated.Load(),
	}
	if us := c.micros.Load(); us > 0 {
		p.Time = time.UnixMicro(us)
	}
	if us := c.started.Load(); us > 0 {
		p.First = time.UnixMicro(us)
	}
	return p
}
