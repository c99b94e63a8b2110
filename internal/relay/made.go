package relay

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"skein.blue/internal/network"
)

// Options say what is served.
type Options struct {
	Network network.Options
	// From is how many events lie behind when the relay starts. Of the last of
	// them it has as many as its window holds.
	From int64
	// Rate is how many events happen in a second. 0: as many as are read.
	Rate float64
	// Events ends the stream after so many from the start. 0: never.
	Events int64
	// Window is how many events are kept for who asks with a cursor. 0 means
	// DefaultWindow.
	Window int
	// Hold keeps the network still until somebody has subscribed.
	Hold bool
	// Full makes commits that can be verified, signature and all. It keeps every
	// repo and is much slower.
	Full bool
	// Past keeps the records of all repos, so that hosts can export them (Hosts). Full
	// goes with it. What lies behind when the relay starts, it has in no window.
	Past bool
	// Faults are what the relay does wrong.
	Faults Faults
	// Now is the clock. nil means time.Now.
	Now func() time.Time
}

// DefaultWindow is how many events a relay keeps, 88 bytes each.
const DefaultWindow = 4 << 20

// tooSlow is the share of the window that a reader may lie behind once it has
// caught up; then it is told ConsumerTooSlow.
const tooSlow = 0.9

// Made serves a network that does not exist. It implements http.Handler. Use NewMade,
// Run, and ServeHTTP as often as wanted.
//
// The same seed makes the same messages under the same sequence numbers; only
// their times are those at which they passed.
type Made struct {
	o    Options
	pool *pool
	full *fullRepos

	mu      sync.Mutex
	changed sync.Cond // head, readers or stopped
	net     *network.Network
	ring    []entry
	head    int64 // the last event made
	tail    int64 // the oldest in the ring
	readers map[*madeFeed]bool
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

// NewMade makes a relay. It takes as long as it takes to go through the events that
// lie behind.
func NewMade(o Options) *Made {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Made{o: o, pool: newPool(o.Network.Seed), net: network.New(o.Network), readers: map[*madeFeed]bool{}}
	r.changed.L = &r.mu
	r.ring = make([]entry, o.Window)
	if o.Full {
		r.full = newFullRepos(r.net, o.Network.Seed)
	}
	kept := min(o.From, int64(o.Window/2))
	if !o.Full {
		r.net.Skip(o.From - kept)
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
	r.advance(o.From)
	return r
}

// advance makes the events up to one. r.mu is held, or nobody else is there yet.
func (r *Made) advance(to int64) {
	now := r.o.Now().UnixMilli()
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

// madeAtOnce bounds what is made before readers may look, and aheadOfReaders
// how far a relay without a rate goes ahead of who reads fastest.
const madeAtOnce, aheadOfReaders = 512, 8192

// Run lets the network happen until ctx ends.
func (r *Made) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		r.stopped = true
		r.changed.Broadcast()
		r.mu.Unlock()
	})()
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
		to := min(due, r.head+madeAtOnce)
		more := due > to
		if to > r.head {
			r.advance(to)
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

// due is the last event that has happened after a time.
func (r *Made) due(passed time.Duration) int64 {
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

// fastest is the position of the reader that has got furthest. r.mu is held.
func (r *Made) fastest() int64 {
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
func (r *Made) Head() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq(r.head)
}

func (r *Made) seq(i int64) int64 { return r.o.Faults.Seq(r.o.From, r.o.Rate, i) }

// madeFeed is a subscription.
type madeFeed struct {
	r        *Made
	enc      encoder
	next     int64 // the event to be sent next
	refusal  *Refusal
	live     bool // it had caught up once
	outdated bool // its cursor lay before what is kept
	repeated bool // it was sent back: a fault
	took     []entry
}

// ServeHTTP implements http.Handler.
func (r *Made) ServeHTTP(w http.ResponseWriter, req *http.Request) { serve(w, req, r) }

// Subscribe implements Stream.
func (r *Made) Subscribe(cursor int64, hasCursor bool) Feed {
	c := &madeFeed{r: r, enc: encoder{n: r.net, pool: r.pool}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = true
	r.changed.Broadcast()
	c.next = r.head + 1
	if hasCursor {
		c.next = r.o.Faults.Event(r.o.From, r.o.Rate, cursor) + 1
		if c.next > r.head+1 {
			c.refusal = &Refusal{"FutureCursor", fmt.Sprintf("Cursor %d in the future, this relay is at %d.", cursor, r.seq(r.head))}
			return c
		}
		if c.next < r.tail {
			c.outdated, c.next = true, r.tail
		}
	}
	r.readers[c] = true
	return c
}

// Stalled implements Feed.
func (c *madeFeed) Stalled() bool {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return c.r.stalled
}

// Close implements Feed.
func (c *madeFeed) Close() {
	c.r.mu.Lock()
	delete(c.r.readers, c)
	c.r.changed.Broadcast()
	c.r.mu.Unlock()
}

// Next implements Feed.
func (c *madeFeed) Next(s *Sender) error {
	if c.refusal != nil {
		return c.refusal
	}
	if c.outdated {
		c.outdated = false
		s.Append(func(dst []byte) []byte {
			return append(dst, infoFrame("OutdatedCursor", "Requested cursor exceeded limit. Possibly missing events")...)
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
	for i := range c.took {
		e := &c.took[i]
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

// takenAtOnce bounds what one call of the system writes, about 256 KB.
const takenAtOnce = 48

// take waits for events, and copies some.
func (c *madeFeed) take() error {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for c.next > r.head || r.stalled {
		if r.stopped || !r.readers[c] {
			return errEnd
		}
		r.changed.Wait()
	}
	if r.stopped || !r.readers[c] {
		return errEnd
	}
	behind := r.head - c.next
	if c.next < r.tail || c.live && float64(behind) > tooSlow*float64(len(r.ring)) {
		delete(r.readers, c)
		return &Refusal{"ConsumerTooSlow", fmt.Sprintf("%d events behind", behind)}
	}
	c.live = c.live || behind < madeAtOnce
	c.took = c.took[:0]
	for ; c.next <= r.head && len(c.took) < takenAtOnce; c.next++ {
		c.took = append(c.took, r.ring[c.next%int64(len(r.ring))])
	}
	if r.o.Rate == 0 && r.head-c.next < aheadOfReaders/2 {
		r.changed.Broadcast()
	}
	return nil
}
