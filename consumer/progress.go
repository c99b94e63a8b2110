package consumer

import (
	"sync/atomic"
	"time"
)

// Progress says how far a Consumer has read and committed.
type Progress struct {
	Events  int64     // messages read
	Bytes   int64     // of messages read
	Size    int64     // of the file; 0 if the source is a relay
	Seq     int64     // of the last message read
	Applied int64     // seq of the last event committed
	Time    time.Time // of the last event committed

	Outdated bool // the relay no longer had the next events at some point
}

// progress is a Progress that changes. Times are Unix microseconds, 0 if they are not known.
type progress struct {
	events, bytes, size, seq, applied atomic.Int64

	micros     atomic.Int64 // event time of the last one applied
	heardSince atomic.Int64 // when this run began to receive the stream
	outdated   atomic.Bool
}

// Progress returns how far the Consumer has read and committed. Any goroutine may call it.
func (c *Consumer) Progress() Progress {
	p := &c.progress
	return Progress{
		Events: p.events.Load(), Bytes: p.bytes.Load(), Size: p.size.Load(), Seq: p.seq.Load(), Applied: p.applied.Load(),
		Time: timeOf(&p.micros), Outdated: p.outdated.Load(),
	}
}

// timeOf returns a time, zero if it is not known.
func timeOf(micros *atomic.Int64) (t time.Time) {
	if us := micros.Load(); us > 0 {
		t = time.UnixMicro(us)
	}
	return t
}

// HeardSince returns when this run began to receive the stream: according to the times of its
// first events, if these agree. known is false until enough events have arrived, or half a
// minute has passed since the first. Any goroutine may call it.
func (c *Consumer) HeardSince() (at time.Time, known bool) {
	at = timeOf(&c.progress.heardSince)
	return at, !at.IsZero()
}
