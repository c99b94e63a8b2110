// Package simulate is a relay of a network that does not exist: it serves
// com.atproto.sync.subscribeRepos for what package network makes up, at a set
// rate or as fast as it is read, with cursor replay, and the faults of real
// relays on request.
//
// The same seed makes the same messages under the same sequence numbers; only
// their times are those at which they passed.
package simulate

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"skein/internal/network"
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

// A Relay serves the stream. It implements http.Handler. Use New, Run, and
// ServeHTTP as often as wanted.
type Relay struct {
	o    Options
	pool *pool
	full *fullRepos

	mu      sync.Mutex
	changed sync.Cond // head, readers or stopped
	net     *network.Network
	ring    []entry
	head    int64 // the last event made
	tail    int64 // the oldest in the ring
	readers map[*reader]bool
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

// New makes a relay. It takes as long as it takes to go through the events that
// lie behind.
func New(o Options) *Relay {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Relay{o: o, pool: newPool(o.Network.Seed), net: network.New(o.Network), readers: map[*reader]bool{}}
	r.changed.L = &r.mu
	r.ring = make([]entry, o.Window)
	if o.Full {
		r.full = newFullRepos(r.net, o.Network.Seed)
	}
	kept := min(o.From, int64(o.Window/2))
	if !o.Full {
		r.net.Skip(o.From - kept)
	}
	r.head = r.net.Seq()
	r.tail = r.head + 1
	r.advance(o.From)
	return r
}

// advance makes the events up to one. r.mu is held, or nobody else is there yet.
func (r *Relay) advance(to int64) {
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
func (r *Relay) Run(ctx context.Context) {
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
func (r *Relay) due(passed time.Duration) int64 {
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
func (r *Relay) fastest() int64 {
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
func (r *Relay) Head() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq(r.head)
}

func (r *Relay) seq(i int64) int64 { return r.o.Faults.Seq(r.o.From, r.o.Rate, i) }

// reader is a subscription.
type reader struct {
	r        *Relay
	conn     *websocket.Conn
	enc      encoder
	next     int64 // the event to be sent next
	live     bool  // it had caught up once
	outdated bool  // its cursor lay before what is kept
	repeated bool  // it was sent back: a fault
	took     []entry
	buf      []byte
	gone     chan struct{}
}

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text := req.URL.Query().Get("cursor")
	cursor, err := strconv.ParseInt(text, 10, 64)
	if text != "" && (err != nil || cursor < 0) {
		http.Error(w, fmt.Sprintf("cursor %q is no sequence number", text), http.StatusBadRequest)
		return
	}
	upgrader := websocket.Upgrader{WriteBufferSize: 4 << 10}
	conn, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		return
	}
	unpaced(conn.NetConn())
	c := &reader{r: r, conn: conn, enc: encoder{n: r.net, pool: r.pool}, gone: make(chan struct{})}
	if c.join(text != "", cursor) {
		go c.listen()
		c.serve()
	} else {
		go c.listen()
		c.fail("FutureCursor", fmt.Sprintf("Cursor %d in the future, this relay is at %d.", cursor, r.Head()))
	}
	_ = conn.Close() // the client will notice
	<-c.gone
}

// join settles where to begin, and reports whether there is such a place.
func (c *reader) join(hasCursor bool, cursor int64) bool {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.joined = true
	r.changed.Broadcast()
	c.next = r.head + 1
	if hasCursor {
		c.next = r.o.Faults.Event(r.o.From, r.o.Rate, cursor) + 1
		if c.next > r.head+1 {
			return false
		}
		if c.next < r.tail {
			c.outdated, c.next = true, r.tail
		}
	}
	r.readers[c] = true
	return true
}

// listen answers pings until the client is gone. A relay that is stalled does
// nothing, that neither.
func (c *reader) listen() {
	defer close(c.gone)
	c.conn.SetPingHandler(func(data string) error {
		c.r.mu.Lock()
		stalled := c.r.stalled
		c.r.mu.Unlock()
		if stalled {
			return nil
		}
		// Not by the library, which would set a deadline for what serve writes.
		const pong = 0x8a
		_, err := c.conn.NetConn().Write(append([]byte{pong, byte(len(data))}, data...))
		return err
	})
	for {
		if _, _, err := c.conn.NextReader(); err != nil {
			break
		}
	}
	c.r.mu.Lock()
	delete(c.r.readers, c)
	c.r.changed.Broadcast()
	c.r.mu.Unlock()
}

// serve sends until the client is gone, or has done something wrong.
func (c *reader) serve() {
	r := c.r
	if c.outdated && c.write(info("OutdatedCursor", "Requested cursor exceeded limit. Possibly missing events")) != nil {
		return
	}
	for c.take() {
		if c.buf = c.buf[:0]; r.o.Faults.repeats(r.o.From, r.o.Rate, c) {
			continue
		}
		for i := range c.took {
			c.frame(&c.took[i])
		}
		if err := c.conn.NetConn().SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			return
		}
		// Whole messages in one call: pongs, which others write, come between.
		if _, err := c.conn.NetConn().Write(c.buf); err != nil {
			return
		}
	}
}

// takenAtOnce bounds what one call of the system writes, about 256 KB.
const takenAtOnce = 48

// take waits for events, and copies some. It returns false at the end.
func (c *reader) take() bool {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for c.next > r.head || r.stalled {
		if r.stopped || !r.readers[c] {
			return false
		}
		r.changed.Wait()
	}
	if r.stopped || !r.readers[c] {
		return false
	}
	behind := r.head - c.next
	if c.next < r.tail || c.live && float64(behind) > tooSlow*float64(len(r.ring)) {
		delete(r.readers, c)
		r.mu.Unlock()
		c.fail("ConsumerTooSlow", fmt.Sprintf("%d events behind", behind))
		r.mu.Lock()
		return false
	}
	c.live = c.live || behind < madeAtOnce
	c.took = c.took[:0]
	for ; c.next <= r.head && len(c.took) < takenAtOnce; c.next++ {
		c.took = append(c.took, r.ring[c.next%int64(len(r.ring))])
	}
	if r.o.Rate == 0 && r.head-c.next < aheadOfReaders/2 {
		r.changed.Broadcast()
	}
	return true
}

// frame appends the websocket message of an event to what is sent. A server's
// messages are not masked (RFC 6455, 5.1), so that they are written here and
// not one by one through the library.
func (c *reader) frame(e *entry) {
	const usual = 4 // bytes of the head of a message of 126 to 65,535 bytes
	start := len(c.buf)
	c.buf = append(c.buf, make([]byte, usual)...)
	if e.frame != nil {
		c.buf = append(c.buf, e.frame...)
	} else {
		c.buf = c.enc.message(c.buf, &e.Event, c.r.seq(e.Seq), e.at)
	}
	body := c.r.o.Faults.damage(&c.enc, &e.Event, c.buf[start+usual:])
	c.buf = c.buf[:start+usual+len(body)]
	var head [10]byte
	if h := appendMessageHead(head[:0], len(body)); len(h) == usual {
		copy(c.buf[start:], h)
	} else {
		c.buf = append(c.buf[:start], append(h, body...)...)
	}
}

func appendMessageHead(dst []byte, n int) []byte {
	const binaryMessage = 0x82
	switch {
	case n < 126:
		return append(dst, binaryMessage, byte(n))
	case n < 1<<16:
		return append(dst, binaryMessage, 126, byte(n>>8), byte(n))
	}
	return append(dst, binaryMessage, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func (c *reader) write(message []byte) error {
	_, err := c.conn.NetConn().Write(append(appendMessageHead(nil, len(message)), message...))
	return err
}

// fail sends an error frame; the connection then ends.
func (c *reader) fail(name, text string) {
	if c.write(errorFrame(name, text)) == nil {
		// What was sent is lost if the connection is closed under it at once.
		_ = c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, name), time.Now().Add(time.Second))
		select {
		case <-c.gone:
		case <-time.After(time.Second):
		}
	}
}
