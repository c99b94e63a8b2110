// Package relay is a relay for tests and load: it serves com.atproto.sync.subscribeRepos,
// with cursor replay.
//
// It has two Streams of messages, which package synth serves to a subscriber (the demo has a third).
// Recorded (recorded.go) serves given messages, and misbehaves as tests need. Simulated (simulated.go,
// encode.go, full.go, faults.go) serves a generated network (package network), at a set rate or as fast as
// it is read, with the faults of real relays on request. Hosts (hosts.go) are the PDSes of that network,
// and Archive (archive.go) is its archive.
package relay

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/synth"
)

// Options say what to serve.
type Options struct {
	Network network.Options
	// From is how many events have happened when the relay starts. It can replay the
	// last of them: half a window, or with Full a whole one.
	From int64
	// FromTime is when the events before the start passed the relay, in whole milliseconds. The
	// zero time means now. A relay that continues another one's sequence must give the event that
	// a consumer has applied last the time that it had; else the consumer concludes that the
	// sequence has restarted.
	FromTime time.Time
	// Rate is the number of events per second. 0: as fast as they are read.
	Rate float64
	// Events ends the stream after that many events from the start. 0: never.
	Events int64
	// Window is how many events are kept for replay after a cursor. 0 means
	// DefaultWindow.
	Window int
	// Hold keeps the network still until the first subscription.
	Hold bool
	// Full makes verifiable commits, with signatures. It stores every repo and is much
	// slower.
	Full bool
	// Past stores the records of all repos, so that hosts can export them (Hosts). It
	// needs Full. The window then has no events from before the start.
	Past bool
	// Faults are the faults of the relay.
	Faults Faults
	// Now is the clock. nil means time.Now.
	Now func() time.Time `json:"-"`
}

// DefaultWindow is how many events a relay keeps; each needs 88 bytes.
const DefaultWindow = 4 << 20

// tooSlow is the share of the window that a reader may lag behind once it has caught
// up; beyond that it receives ConsumerTooSlow.
const tooSlow = 0.9

// Simulated serves a generated network. It implements http.Handler. Use NewSimulated, Run, and
// ServeHTTP any number of times.
//
// The same seed yields the same messages under the same sequence numbers, except for
// the times, which are those at which they passed the relay.
type Simulated struct {
	o    Options
	pool *pool
	full *fullRepos

	mu      sync.Mutex // guards the fields below
	changed sync.Cond  // head, readers or stopped
	net     *network.Network
	ring    []entry
	head    int64 // the newest event
	tail    int64 // the oldest in the ring
	readers map[*simulatedFeed]bool
	joined  bool             // somebody has subscribed
	dids    map[string]int32 // for Documents
	stalled bool
	stopped bool
}

type entry struct {
	network.Event
	at    int64  // when it passed, in Unix milliseconds
	frame []byte // of a full relay
}

// NewSimulated creates a relay. It goes through all events before the start, which takes
// time.
func NewSimulated(o Options) *Simulated {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Simulated{o: o, pool: newPool(o.Network.Seed), net: network.New(o.Network), readers: map[*simulatedFeed]bool{}}
	r.changed.L = &r.mu
	r.ring = make([]entry, o.Window)
	if o.Full {
		r.full = &fullRepos{status: map[int32]network.Status{}, n: r.net, seed: o.Network.Seed, enc: encoder{n: r.net}, repos: map[int32]*fullRepo{}}
	}
	replayable := min(o.From, int64(o.Window/2))
	if !o.Full {
		r.net.Skip(o.From - replayable)
	}
	if o.Past {
		r.full.whole = true
		var e network.Event
		for r.net.Seq() < o.From {
			r.net.Next(&e)
			r.full.past(&e)
		}
	}
	r.head = r.net.Seq()
	r.tail = r.head + 1
	now := o.FromTime
	if now.IsZero() {
		now = o.Now()
	}
	r.advance(o.From, now)
	return r
}

// advance generates the events up to one, which pass the relay at a time. r.mu is held, or r is not
// shared yet.
func (r *Simulated) advance(to int64, at time.Time) {
	now := at.UnixMilli()
	for r.head < to {
		e := &r.ring[(r.head+1)%int64(len(r.ring))]
		r.net.Next(&e.Event)
		e.at = now
		if r.full != nil {
			e.frame = r.full.message(&e.Event, r.o.Faults.Seq(r.o.From, r.o.Rate, r.head+1), now)
		}
		r.head++
		if r.tail = max(r.tail, r.head-int64(len(r.ring))+1); r.head == 1 {
			r.tail = 1
		}
	}
}

// generatedAtOnce bounds the events generated before readers may look, and aheadOfReaders
// how far a relay without a rate goes ahead of its fastest reader.
const generatedAtOnce, aheadOfReaders = 512, 8192

// Run generates events until ctx ends. Then no reader receives more.
func (r *Simulated) Run(ctx context.Context) {
	stop := func() {
		r.mu.Lock()
		r.stopped = true
		r.changed.Broadcast()
		r.mu.Unlock()
	}
	defer stop() // Run may return before AfterFunc has begun, and then AfterFunc never calls stop
	defer context.AfterFunc(ctx, stop)()
	r.mu.Lock()
	for r.o.Hold && !r.joined && !r.stopped {
		r.changed.Wait()
	}
	r.mu.Unlock()
	begun := r.o.Now()
	for ctx.Err() == nil {
		due := r.due(r.o.Now().Sub(begun))
		r.mu.Lock()
		for r.o.Rate == 0 && r.head >= due && !r.stopped {
			r.changed.Wait()
			due = r.fastest() + aheadOfReaders
		}
		if r.o.Events > 0 {
			due = min(due, r.o.From+r.o.Events)
		}
		to := min(due, r.head+generatedAtOnce)
		more := due > to
		if to > r.head {
			r.advance(to, r.o.Now())
		}
		atEnd := r.o.Events > 0 && r.head >= r.o.From+r.o.Events && !r.stalled
		r.changed.Broadcast()
		r.mu.Unlock()
		switch {
		case atEnd:
			<-ctx.Done()
		case !more && r.o.Rate > 0:
			const tick = 2 * time.Millisecond
			select {
			case <-time.After(max(tick, min(time.Duration(float64(time.Second)/r.o.Rate), 100*time.Millisecond))):
			case <-ctx.Done():
			}
		}
	}
}

// due returns the last event that has happened after a time.
func (r *Simulated) due(passed time.Duration) int64 {
	if r.o.Rate == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.fastest() + aheadOfReaders
	}
	passed, stalled := r.o.Faults.passed(passed)
	r.mu.Lock()
	r.stalled = stalled
	r.mu.Unlock()
	return r.o.From + int64(passed.Seconds()*r.o.Rate)
}

// fastest returns the position of the most advanced reader. r.mu is held.
func (r *Simulated) fastest() int64 {
	at := r.head - aheadOfReaders
	first := true
	for c := range r.readers {
		if first || c.next-1 > at {
			at, first = c.next-1, false
		}
	}
	return at
}

// Head returns the sequence number of the newest event.
func (r *Simulated) Head() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq(r.head)
}

func (r *Simulated) seq(i int64) int64 { return r.o.Faults.Seq(r.o.From, r.o.Rate, i) }

// simulatedFeed is a subscription.
type simulatedFeed struct {
	r        *Simulated
	enc      encoder
	next     int64 // the next event to send
	refusal  *synth.Refusal
	live     bool // has caught up once
	outdated bool // its cursor was before the window
	repeated bool // was moved back by a fault
	batch    []entry
}

// ServeHTTP implements http.Handler.
func (r *Simulated) ServeHTTP(w http.ResponseWriter, req *http.Request) { synth.Serve(w, req, r) }

// Subscribe implements synth.Stream.
func (r *Simulated) Subscribe(cursor int64, hasCursor bool) synth.Feed {
	c := &simulatedFeed{r: r, enc: encoder{n: r.net, pool: r.pool}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = true
	r.changed.Broadcast()
	c.next = r.head + 1
	if hasCursor {
		c.next = r.o.Faults.Event(r.o.From, r.o.Rate, cursor) + 1
		if c.next > r.head+1 {
			c.refusal = &synth.Refusal{Name: "FutureCursor", Text: fmt.Sprintf("Cursor %d in the future, this relay is at %d.", cursor, r.seq(r.head))}
			return c
		}
		if c.next < r.tail {
			c.outdated, c.next = true, r.tail
		}
	}
	r.readers[c] = true
	return c
}

// Stalled implements synth.Feed.
func (c *simulatedFeed) Stalled() bool {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return c.r.stalled
}

// Close implements synth.Feed.
func (c *simulatedFeed) Close() {
	c.r.mu.Lock()
	delete(c.r.readers, c)
	c.r.changed.Broadcast()
	c.r.mu.Unlock()
}

// Next implements synth.Feed.
func (c *simulatedFeed) Next(s *synth.Sender) error {
	if c.refusal != nil {
		return c.refusal
	}
	if c.outdated {
		c.outdated = false
		s.Append(func(dst []byte) []byte {
			return append(dst, synth.InfoFrame("OutdatedCursor", "Requested cursor exceeded limit. Possibly missing events")...)
		})
		return nil
	}
	if err := c.take(); err != nil {
		return err
	}
	f := &c.r.o.Faults
	if f.repeats(c.r.o.From, c.r.o.Rate, c) {
		return nil
	}
	for i := range c.batch {
		e := &c.batch[i]
		s.Append(func(dst []byte) []byte {
			start := len(dst)
			if e.frame != nil {
				dst = append(dst, e.frame...)
			} else {
				dst = c.enc.message(dst, &e.Event, c.r.seq(e.Seq), e.at)
			}
			return dst[:start+len(f.damage(&c.enc, &e.Event, dst[start:]))]
		})
	}
	return nil
}

// takenAtOnce bounds the bytes of one write, to about 256 KB.
const takenAtOnce = 48

// take waits for events, and copies some.
func (c *simulatedFeed) take() error {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for c.next > r.head || r.stalled {
		if r.stopped || !r.readers[c] {
			return synth.ErrEnd
		}
		r.changed.Wait()
	}
	if r.stopped || !r.readers[c] {
		return synth.ErrEnd
	}
	behind := r.head - c.next
	if c.next < r.tail || c.live && float64(behind) > tooSlow*float64(len(r.ring)) {
		delete(r.readers, c)
		return &synth.Refusal{Name: "ConsumerTooSlow", Text: fmt.Sprintf("%d events behind", behind)}
	}
	c.live = c.live || behind < generatedAtOnce
	c.batch = c.batch[:0]
	for ; c.next <= r.head && len(c.batch) < takenAtOnce; c.next++ {
		c.batch = append(c.batch, r.ring[c.next%int64(len(r.ring))])
	}
	if r.o.Rate == 0 && r.head-c.next < aheadOfReaders/2 {
		r.changed.Broadcast()
	}
	return nil
}
