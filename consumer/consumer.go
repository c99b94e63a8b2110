// Package consumer reads the firehose: it connects to a relay, or reads a file of recorded
// frames, checks the order of the stream, notices gaps, decodes the events, and applies
// them to the graph in batches. It does not know how the graph is stored, and answers no
// queries.
//
// Two goroutines do the work: one takes in and decodes messages (Consumer.handle), one
// applies batches (feed.run). A Verifier adds goroutines that read ahead and verify (proof.Order). The firehose serves as the log: the graph commits the cursor together with
// the data, and after an interruption the consumer requests everything after that cursor
// again. Other goroutines, such as a backfill, may write to the same graph meanwhile: the
// graph's write methods are safe for concurrent use.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// ErrRelay is wrapped by the error for an error frame from the relay.
var ErrRelay = errors.New("consumer: the relay ended the stream")

// ErrCursorStored means that Options name a cursor although the store already has one.
var ErrCursorStored = errors.New("consumer: a cursor is stored already")

// ErrBlocked ends a run with StopOnError if the stored cursor is in the relay's future, as the relay
// said or its events show, and no operator has decided how to continue.
var ErrBlocked = errors.New("consumer: the stored cursor is in the relay's future")

// Options say what to consume, and when to end.
type Options struct {
	// Relay is the address to connect to, unless Frames is set. See ParseRelay.
	Relay string
	// DiskFull, if set, reports whether the store accepts no writes because its disk is full.
	DiskFull func() bool
	// Source is the name under which the cursor is stored. "" means the relay's host, or the path
	// of the file.
	Source string
	// Frames is a .frames file to read instead.
	Frames string
	// Read, if set, has the messages, instead of a relay or Frames. Relay still names the source.
	Read iter.Seq[[]byte]
	// Rate limits how many messages per second are read from Frames. 0: no limit.
	Rate float64
	// Cursor is where to start: the first event applied has a greater seq. If it is
	// nil, the run starts at the stored cursor; if none is stored, at the live end of the stream, or
	// at the start of the file.
	Cursor *int64
	// ForceCursor allows Cursor although a cursor is stored.
	ForceCursor bool
	// Until ends the run after the first event with this seq or a greater one. 0: no end.
	Until int64
	// Idle ends the run after this much silence; CatchUp ends it after four events in a row that
	// are newer than the start of the run. Both are for skein replay.
	Idle    time.Duration
	CatchUp bool
	// Watchdog reconnects after this long without a message or a pong. 0: never.
	Watchdog time.Duration
	// MinBackoff and MaxBackoff bound the wait between connections. 0: 1 s, 1 min.
	MinBackoff, MaxBackoff time.Duration
	// StopOnError ends the run when the relay sends an error frame.
	StopOnError bool
	// Committed, if set, is called once events are visible to queries: for a sample of
	// them, with the arrival time and the number of events that it stands for (itself and
	// those after it).
	Committed func(arrived time.Time, events int)
	// Part, if set, is the part of the network that the store holds.
	Part *wire.Part
	// Verifier, if set, checks what the relay sends: see Verifier.
	Verifier Verifier
	// UserAgent is sent to the relay.
	UserAgent string

	Logger  *slog.Logger
	Metrics *Metrics
}

// A Consumer consumes one source. Use New, then Run, once.
type Consumer struct {
	intake

	store   *graph.Store
	source  string
	hasFrom bool // start after intake.from; else live
	link    link
}

// New returns a Consumer that applies events to store, and checks the cursor options
// against the store.
func New(store *graph.Store, o Options) (*Consumer, error) {
	o.Logger, o.Metrics = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Metrics, NewMetrics(prometheus.NewRegistry(), nil))
	o.MinBackoff, o.MaxBackoff = cmp.Or(o.MinBackoff, time.Second), cmp.Or(o.MaxBackoff, time.Minute)
	c := &Consumer{store: store, intake: intake{o: o, metrics: o.Metrics, feed: newFeed(), sequence: sequence{times: eventTimes{now: time.Now}}}}
	c.decoder.Owns, c.decoder.Part, c.decoder.Kinds, c.decoder.OtherRev = store.Owns, o.Part, store.Kinds(), o.Metrics.OtherRevs.Inc
	c.decoder.Latest = func() batch.Rev {
		_, present := c.sequence.times.span()
		return graph.LatestRev(present)
	}
	var err error
	if o.Frames != "" {
		c.source, err = filepath.Abs(o.Frames)
	} else {
		c.source, c.url, err = ParseRelay(o.Relay)
	}
	if err != nil {
		return nil, err
	}
	c.source = cmp.Or(o.Source, c.source)
	c.log = o.Logger.With("component", "consumer", "relay", c.source)
	stored, isStored := store.Cursor(c.source)
	switch {
	case o.Cursor != nil && *o.Cursor < 0:
		return nil, fmt.Errorf("consumer: cursor %d is negative", *o.Cursor)
	case o.Cursor != nil && isStored && !o.ForceCursor && (stored.Future || batch.Seq(*o.Cursor) != stored.Seq):
		where := "continue from there"
		if stored.Future {
			where = "keep that cursor, which is in the relay's future"
		}
		return nil, fmt.Errorf("%w: %s was applied up to seq %d; leave --cursor out to %s, or add --force-cursor to start after %d instead",
			ErrCursorStored, c.source, stored.Seq, where, *o.Cursor)
	case o.Cursor != nil:
		c.from, c.hasFrom = batch.Seq(*o.Cursor), true
	case isStored:
		c.from, c.hasFrom = stored.Seq, true
	}
	if isStored {
		c.progress.micros.Store(stored.Time.UnixMicro())
		c.progress.applied.Store(int64(stored.Seq))
	}
	return c, nil
}

// Source returns the name of the stored cursor: the relay's host, or the file's absolute
// path.
func (c *Consumer) Source() string { return c.source }

// Run consumes until ctx ends, until the end that Options ask for, or until an error that a retry
// cannot fix. For a relay it returns nil once ctx ends and everything read is committed; for a
// file, ending ctx early is an error.
func (c *Consumer) Run(ctx context.Context) error {
	c.runStart = time.Now()
	// Everything read is committed even after ctx has ended.
	applyCtx, stopApplying := context.WithCancel(context.WithoutCancel(ctx))
	defer stopApplying()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, stopApplying) })()
	if err := c.begin(applyCtx); err != nil { // also after ctx: the next run of this process has no options about the cursor
		if ctx.Err() != nil && errors.Is(err, context.Canceled) { // stopped right after the start
			return nil
		}
		return err
	}
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
		next, stop := iter.Pull(c.o.Read)
		err = c.readFrames(ctx, func() ([]byte, error) {
			if frame, ok := next(); ok {
				return frame, nil
			}
			return nil, io.EOF
		})
		stop()
	case c.o.Frames != "":
		err = c.readFile(ctx)
	default:
		err = c.readRelay(ctx)
	}
	c.feed.close()
	if applyErr := <-applied; applyErr != nil {
		if applyCtx.Err() != nil && errors.Is(applyErr, context.Canceled) {
			c.log.Warn("stopped before everything read was committed; the next start reads the rest again", "after", drainTime.String())
			return nil
		}
		return applyErr
	}
	return err
}

// drainTime bounds how long the end of a run waits until everything read is committed. The
// next start reads the rest again.
const drainTime = 7 * time.Second

// apply commits a batch. Only the applying goroutine calls it.
func (c *Consumer) apply(ctx context.Context, q *queued) error {
	b := &q.batch
	if err := c.store.Apply(ctx, c.source, b); err != nil {
		return err
	}
	q.eachMark(func(arrived time.Time, events int) {
		c.metrics.Queryable.Observe(time.Since(arrived).Seconds())
		if c.o.Committed != nil {
			c.o.Committed(arrived, events)
		}
	})
	if b.Last() != 0 {
		c.progress.applied.Store(int64(b.Last()))
		if t := b.Time(); !t.IsZero() {
			c.progress.micros.Store(t.UnixMicro())
		}
	}
	return nil
}

// idle erases a slice of the records of deleted accounts while there is nothing to apply. Only the
// applying goroutine calls it.
func (c *Consumer) idle(ctx context.Context) (more bool, err error) {
	if !c.store.Erasing() {
		return false, nil
	}
	if err := c.store.EraseSlice(ctx); err != nil {
		return false, err
	}
	return c.store.Erasing(), nil
}

// Ops returns the number of decoded operations on indexed collections. Call it after Run.
func (c *Consumer) Ops() int64 { return c.decoder.Ops }
