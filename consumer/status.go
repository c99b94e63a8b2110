package consumer

import (
	"sync/atomic"
	"time"
)

// A State says what a Consumer is doing.
type State string

// The states of a Consumer, and Off for a process that has none.
const (
	Connecting   State = "connecting" // there is no connection to the relay
	Live         State = "live"       // all that the relay has sent is in the index, or nearly
	CatchingUp   State = "catchingUp" // the last event applied is more than catchingUp old
	Blocked      State = "blocked"    // the relay said that our cursor lies in its future: an operator must decide
	NotConsuming State = "off"
)

// States lists them.
var States = []State{Connecting, Live, CatchingUp, Blocked, NotConsuming}

const (
	// catchingUp is from which age of the last event on a stream is behind.
	catchingUp = 10 * time.Second
	// idleAfter is after how much silence a stream is idle. One that is being
	// caught up with is never silent for so long.
	idleAfter = 2 * time.Second
)

// life is what is known of the connection. Times are Unix microseconds, 0 where
// there is none.
type life struct {
	connected atomic.Int64 // since
	message   atomic.Int64 // when the last one came, or was handed on
	sign      atomic.Int64 // of life: a message, a pong, or the connection itself
	messages  atomic.Int64 // how many have come
	coming    atomic.Int64 // 1 + how many had come in this connection when one began that is not complete; 0: none is
	blocked   atomic.Bool  // an operator must decide where to go on
}

func stamp(at *atomic.Int64) { at.Store(time.Now().UnixMicro()) }

func since(at *atomic.Int64) time.Duration { return time.Since(time.UnixMicro(at.Load())) }

func (l *life) begin() {
	now := time.Now().UnixMicro()
	l.message.Store(now)
	l.sign.Store(now)
	l.coming.Store(0)
	l.connected.Store(now)
}

// end notes that there is no connection any more, and returns how long there was one.
func (l *life) end() time.Duration {
	at := l.connected.Swap(0)
	if at == 0 {
		return 0
	}
	return time.Since(time.UnixMicro(at))
}

// A Status is what a Consumer is doing, and how fresh what it has applied is.
type Status struct {
	State State
	// Cursor is the last sequence number committed, 0 before the first.
	Cursor int64
	// Lag is how old the newest event is that has been committed; where the stream
	// is idle and all of it is committed, how long ago the relay last proved that
	// it is alive. HasLag is false before the first event.
	Lag    time.Duration
	HasLag bool
	// Newest is the time of the last event committed, zero before the first.
	Newest time.Time
}

// Status returns what the Consumer is doing. Any goroutine may call it.
func (c *Consumer) Status() Status {
	s := Status{Cursor: c.applied.Load()}
	if us := c.micros.Load(); us > 0 {
		s.Newest, s.HasLag = time.UnixMicro(us), true
		s.Lag = max(0, time.Since(s.Newest))
		if c.isIdle() {
			s.Lag = max(0, min(s.Lag, since(&c.life.sign)))
		}
	}
	switch {
	case c.life.blocked.Load():
		s.State = Blocked
	case c.life.connected.Load() == 0:
		s.State = Connecting
	case s.HasLag && s.Lag > catchingUp:
		s.State = CatchingUp
	default:
		s.State = Live
	}
	return s
}

// isIdle reports whether the relay has been silent for a while and all that it sent
// is committed. A sign of life then proves that nothing is missing: it comes after
// what the relay sent before it.
func (c *Consumer) isIdle() bool {
	return c.life.connected.Load() != 0 && c.waiting.Load() && c.life.coming.Load() == 0 &&
		since(&c.life.message) >= idleAfter && c.feed.empty()
}
