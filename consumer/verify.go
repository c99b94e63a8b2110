package consumer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/semaphore"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/internal/frames"
)

// A Verifier checks whether an account made what a message says. Any goroutine may call it.
type Verifier interface {
	// Verify returns "" if the account made the Commit or Sync, else the reason to drop it, and
	// an error with the details.
	Verify(ctx context.Context, m *wire.Message) (wire.Reason, error)
	// Changed says that an account's DID document may have changed.
	Changed(did []byte)
}

// Messages are verified concurrently and handled in order: many wait for the key of a new account,
// and a signature takes longer than everything else. These bound the messages under way.
const (
	verifyMessages = 2048
	verifyBytes    = 32 << 20
)

// ruling is what the Verifier says of a message: nothing, or why to drop it.
type ruling struct {
	reason wire.Reason
	detail error
}

// pending is a message, and the Verifier's ruling once done is closed.
type pending struct {
	kind   int // of the websocket message
	frame  []byte
	err    error // instead of a message
	ruling ruling
	done   chan struct{}
}

// An order keeps each account's messages in order while they are verified: an #identity must not
// make the Verifier forget a key that an earlier commit of the account needs, and a later commit
// must not be checked with a key that the #identity replaces. Messages between two #identity
// messages of an account are verified concurrently. It has an entry for each account with messages
// under way, so verifyMessages and verifyBytes bound it.
type order struct {
	mu       sync.Mutex
	accounts map[string]*turns
}

// turns are the messages of one account that are under way.
type turns struct {
	n        int             // messages under way
	commits  *sync.WaitGroup // since the last #identity
	identity chan struct{}   // of the last #identity: closed once it is carried out; nil if there was none
}

// begin registers a Commit or Sync. Before verifying it, receive from wait unless that is nil; afterwards
// call end.
func (o *order) begin(did []byte) (wait <-chan struct{}, end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.accounts[string(did)]
	if a == nil {
		if o.accounts == nil {
			o.accounts = map[string]*turns{}
		}
		a = &turns{commits: new(sync.WaitGroup)}
		o.accounts[string(did)] = a
	}
	a.n++
	commits := a.commits
	commits.Add(1)
	return a.identity, func() {
		commits.Done()
		o.end(did, a)
	}
}

func (o *order) end(did []byte, a *turns) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.n--; a.n == 0 {
		delete(o.accounts, string(did))
	}
}

// change notes an #identity. Call wait before carrying it out, then end; both are nil if no
// message of the account is under way.
func (o *order) change(did []byte) (wait, end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.accounts[string(did)]
	if a == nil {
		return nil, nil
	}
	a.n++
	commits, before, done := a.commits, a.identity, make(chan struct{})
	a.commits, a.identity = new(sync.WaitGroup), done
	wait = func() {
		if before != nil {
			<-before
		}
		commits.Wait()
	}
	return wait, func() {
		close(done)
		o.end(did, a)
	}
}

// check starts to verify a message, whose frame nobody else may change.
func (c *Consumer) check(ctx context.Context, p *pending, underWay *sync.WaitGroup) {
	p.done = make(chan struct{})
	m := new(wire.Message)
	if p.err != nil || wire.Parse(p.frame, m) != nil {
		close(p.done)
		return
	}
	switch {
	case m.Type == wire.Identity:
		wait, end := c.order.change(m.DID)
		if wait == nil {
			c.o.Verifier.Changed(m.DID)
			break
		}
		underWay.Go(func() {
			wait()
			c.o.Verifier.Changed(m.DID)
			end()
			close(p.done)
		})
		return
	case (m.Type == wire.Commit || m.Type == wire.Sync) && (c.decoder.Owns == nil || c.decoder.Owns(m.DID)):
		wait, end := c.order.begin(m.DID)
		underWay.Go(func() {
			if wait != nil {
				<-wait
			}
			p.ruling = c.rule(ctx, m)
			end()
			close(p.done)
		})
		return
	}
	close(p.done)
}

// rule asks the Verifier. For an account in the index, a missing key counts as unreachable, so that
// its repo is queued and does not seem complete. An unknown account without a key is assumed to be
// fictitious.
func (c *Consumer) rule(ctx context.Context, m *wire.Message) ruling {
	reason, detail := c.o.Verifier.Verify(ctx, m)
	if reason != wire.NoKey {
		return ruling{reason, detail}
	}
	known := true
	err := c.store.View(ctx, func(s *graph.View) (err error) {
		_, known, _, err = s.Account(string(m.DID))
		return err
	})
	if err != nil || known {
		return ruling{wire.KeyUnreachable, detail}
	}
	return ruling{wire.NoKey, detail}
}

// verifying reads ahead with receive, in a goroutine of its own, so that messages are verified side
// by side. It returns a function that returns them in order. stop ends the connection.
func (c *Consumer) verifying(conn *websocket.Conn, receive func() pending) (next func() pending, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	queue := make(chan *pending, verifyMessages)
	room := semaphore.NewWeighted(verifyBytes)
	var underWay sync.WaitGroup
	underWay.Go(func() {
		defer close(queue)
		for ended := false; !ended; {
			p := receive()
			p.frame = bytes.Clone(p.frame)
			if room.Acquire(ctx, weight(p.frame)) != nil {
				return
			}
			c.check(ctx, &p, &underWay)
			ended = p.err != nil && !errors.Is(p.err, frames.ErrTooLarge)
			select {
			case queue <- &p:
			case <-ctx.Done():
				return
			}
		}
	})
	next = func() pending {
		p, ok := <-queue
		if !ok {
			return pending{err: net.ErrClosed}
		}
		<-p.done
		room.Release(weight(p.frame))
		return *p
	}
	return next, func() {
		cancel()
		closeNow(conn)
		underWay.Wait()
	}
}

// weight is what a message counts towards verifyBytes.
func weight(frame []byte) int64 { return min(int64(len(frame)), verifyBytes) }

// handle takes in one message of a file or of Options.Read. With a Verifier it only starts the check:
// messages are taken in, in order, once the window is full, or by handleRest.
func (c *Consumer) handle(frame []byte) error {
	if c.o.Verifier == nil {
		return c.handleVerified(frame, ruling{})
	}
	p := &pending{frame: bytes.Clone(frame)}
	c.check(context.Background(), p, &c.underWay)
	c.window = append(c.window, p)
	c.windowBytes += len(frame)
	for len(c.window) > verifyMessages || c.windowBytes > verifyBytes {
		if err := c.handleOldest(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Consumer) handleOldest() error {
	p := c.window[0]
	c.window, c.windowBytes = c.window[1:], c.windowBytes-len(p.frame)
	<-p.done
	return c.handleVerified(p.frame, p.ruling)
}

// handleRest takes in the messages of a file that are still being verified.
func (c *Consumer) handleRest() error {
	defer c.underWay.Wait()
	for len(c.window) > 0 && !c.ended.Load() {
		if err := c.handleOldest(); err != nil {
			return err
		}
	}
	return nil
}
