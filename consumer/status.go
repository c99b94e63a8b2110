package consumer

import (
	"sync/atomic"
	"time"
)

// A State is the current activity of a Consumer.
type State string

// The states of a Consumer, and NotConsuming for a process without one.
const (
	Connecting   State = "connecting" // no connection to the relay
	Live         State = "live"       // the index has everything that the relay sent, or nearly
	CatchingUp   State = "catchingUp" // the last committed event is more than ten seconds old
	Blocked      State = "blocked"    // the relay said that the cursor is in its future: an operator must decide
	Full         State = "full"       // the store's disk is full: nothing is indexed until there is space
	NotConsuming State = "off"
)

// States lists all states.
var States = []State{Connecting, Live, CatchingUp, Blocked, Full, NotConsuming}

const (
	// behindAfter is the age of the last event above which a stream counts as behind.
	behindAfter = 10 * time.Second
	// idleAfter is the silence after which a stream is idle. During catch-up a stream
	// is never silent for so long.
	idleAfter = 2 * time.Second
)

// link is the state of the connection. Times are Unix microseconds, 0 if there is
// none.
type link struct {
	waiting   atomic.Bool  // for the relay; false while waiting for the store
	connected atomic.Int64 // since when
	message   atomic.Int64 // when a message last came, or was being handled
	sign      atomic.Int64 // time of the last sign of life: a message, a pong, or the start of the connection
	pending   atomic.Int64 // messages that were received and are not handled yet
	steps     atomic.Int64 // how many messages have begun and ended: odd while one is arriving
	blocked   atomic.Bool  // an operator must decide how to continue
}

func stamp(at *atomic.Int64) { at.Store(time.Now().UnixMicro()) }

func since(at *atomic.Int64) time.Duration { return time.Since(time.UnixMicro(at.Load())) }

func (l *link) begin() {
	now := time.Now().UnixMicro()
	l.pending.Store(0)
	l.message.Store(now)
	l.sign.Store(now)
	l.connected.Store(now)
}

// end notes the end of the connection, and returns how long it lasted.
func (l *link) end() time.Duration {
	at := l.connected.Swap(0)
	if at == 0 {
		return 0
	}
	return time.Since(time.UnixMicro(at))
}

// A Status is the State of a Consumer, and the freshness of its events.
type Status struct {
	State State
	// Cursor is the last sequence number committed, 0 before the first.
	Cursor int64
	// Lag is the age of the newest committed event; on an idle stream that is
	// committed completely, the time since the relay last showed a sign of life.
	// HasLag is false before the first event.
	Lag    time.Duration
	HasLag bool
	// Newest is the time of the last event committed, zero before the first.
	Newest time.Time
}

// Status returns the current activity. Any goroutine may call it.
func (c *Consumer) Status() Status {
	s := Status{Cursor: c.progress.applied.Load(), Newest: timeOf(&c.progress.micros)}
	if !s.Newest.IsZero() {
		s.HasLag = true
		s.Lag = max(0, time.Since(s.Newest))
		if c.isIdle() {
			s.Lag = max(0, min(s.Lag, since(&c.link.sign)))
		}
	}
	switch {
	case c.o.DiskFull != nil && c.o.DiskFull():
		s.State = Full
	case c.link.blocked.Load():
		s.State = Blocked
	case c.link.connected.Load() == 0:
		s.State = Connecting
	case s.HasLag && s.Lag > behindAfter:
		s.State = CatchingUp
	default:
		s.State = Live
	}
	return s
}

// isIdle reports whether the relay has been silent for a while and everything that it
// sent is committed. A sign of life then proves that nothing is missing: the connection
// keeps order, so a pong arrives after everything that the relay sent before it.
func (c *Consumer) isIdle() bool {
	return c.link.pending.Load() == 0 && !c.holding.Load() && c.link.connected.Load() != 0 && c.link.waiting.Load() && c.link.steps.Load()%2 == 0 &&
		since(&c.link.message) >= idleAfter && c.feed.empty()
}
