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
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/internal/loglimit"
)

// ErrRelay is wrapped by the error that an error frame of the relay becomes.
var ErrRelay = errors.New("consumer: the relay ended the stream")

// ErrCursorStored is returned where a cursor was given, but one is stored.
var ErrCursorStored = errors.New("consumer: a cursor is stored already")

// ErrBlocked is returned by a run that is to end on errors, where the relay said
// that the stored cursor lies in its future, and nobody has decided what to do.
var ErrBlocked = errors.New("consumer: the relay said that the stored cursor lies in its future")

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
	from       format.Seq // begin after this; live if hasFrom is false
	hasFrom    bool
	verify     *format.Cursor // its event is to come first, and to be the one that was applied
	countedOps wire.Counts
	limit      loglimit.Limiter

	// holding says that events are held for their numbers. As long as it is set,
	// taking is held while a message is taken in, by the reading goroutine, and by
	// the one that watches when something has been held for too long. Only the
	// reading goroutine sets it, so that without it that one is alone.
	taking      sync.Mutex
	holding     atomic.Bool
	decoder     wire.Decoder
	message     wire.Message
	heldMessage wire.Message
	numbers     numbering
	countedRevs int
	outdatedNow bool        // in this session the relay said that the cursor is outdated
	unseen      *format.Gap // from a cursor of another source on, unless the first event is older
	dropped     int         // events in a row whose numbers were no good
	droppedFrom time.Time   // since when
	times       eventTimes  // of the events taken
	caughtUp    int         // events in a row from after the start of the run
	restarted   int         // events in a row with old numbers and a newer time

	ended   atomic.Bool // Until or CatchUp was reached
	silence atomic.Bool // the session ended by silence, and with it the replay
	waiting atomic.Bool // for the relay, and not for the store
	life    life

	// For Progress.
	events  atomic.Int64
	bytes   atomic.Int64
	size    atomic.Int64
	seq     atomic.Int64
	applied atomic.Int64
	micros  atomic.Int64 // event time of the last applied
	started atomic.Int64 // event time of the first, in Unix microseconds
	heard   atomic.Int64 // since when the stream is heard, in Unix microseconds; 0: not known yet

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
	c := &Consumer{o: o, store: store, metrics: o.Metrics, feed: newFeed(), times: eventTimes{now: time.Now}}
	c.decoder.Owns, c.decoder.Kinds = store.Owns, store.Kinds()
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
	case o.Cursor != nil && isStored && !o.ForceCursor && stored.Future:
		return nil, fmt.Errorf("%w: %s was applied up to seq %d, which the relay said lies in its future; add --force-cursor to begin after %d, or leave --cursor out to wait",
			ErrCursorStored, c.source, stored.Seq, *o.Cursor)
	case o.Cursor != nil && isStored && !o.ForceCursor && format.Seq(*o.Cursor) != stored.Seq:
		return nil, fmt.Errorf("%w: %s was applied up to seq %d; leave --cursor out to go on from there, or add --force-cursor to begin after %d instead",
			ErrCursorStored, c.source, stored.Seq, *o.Cursor)
	case o.Cursor != nil:
		c.from, c.hasFrom = format.Seq(*o.Cursor), true
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
		c.metrics.ops(c.decoder.Kinds, &c.decoder.Ops, &c.countedOps)
	case c.o.Frames != "":
		err = c.readFile(ctx)
	default:
		err = c.readRelay(ctx)
	}
	if c.o.Frames != "" || c.o.Read != nil {
		err = errors.Join(err, c.settle())
	}
	c.feed.close()
	if applyErr := <-applied; applyErr != nil {
		if applyCtx.Err() != nil && errors.Is(applyErr, context.Canceled) {
			c.log.Warn("stopped before all that was read was committed; the rest is read again at the next start", "after", drainTime.String())
			return nil
		}
		return applyErr
	}
	return err
}

// drainTime is how long what was read may take to be committed once the run is
// to end. What is not is read again at the next start.
const drainTime = 7 * time.Second

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

// clip makes a string of bytes from outside, of a bearable length.
func clip(b []byte) string {
	const most = 512
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}

// HeardSince returns since when this run hears the stream, by the times of its first events
// where these agree. known is false until there have been some, or half a minute has passed
// since the first. Any goroutine may call it.
func (c *Consumer) HeardSince() (at time.Time, known bool) {
	micros := c.heard.Load()
	return time.UnixMicro(micros), micros != 0
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
