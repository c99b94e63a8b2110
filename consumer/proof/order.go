package proof

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"

	"golang.org/x/sync/semaphore"

	"skein.blue/consumer/wire"
)

// A Ruling is what a check says of a message: nothing, or why to drop it.
type Ruling struct {
	Reason wire.Reason
	Detail error
}

// An Item is a message of a stream, and its Ruling.
type Item struct {
	Kind   int // of the websocket message
	Frame  []byte
	Err    error // instead of a message
	Ruling Ruling

	done chan struct{} // closed once Ruling is set
}

// An Order verifies the messages of a stream side by side, because many wait for the key of a new
// account, and a signature takes longer than everything else.
//
// It keeps each account's messages in order: an #identity must not make a Verifier forget a key
// that an earlier commit of the account needs, and a later commit must not be checked with a key
// that the #identity replaces. Messages between two #identity messages of an account are verified
// concurrently. It has an entry for each account with messages under way, so aheadMessages and
// aheadBytes bound it.
type Order struct {
	// Rule checks a Commit or a Sync.
	Rule func(ctx context.Context, m *wire.Message) Ruling
	// Changed says that an account's DID document may have changed.
	Changed func(did []byte)
	// Owns, if set, reports whether to check the messages of an account.
	Owns func(did []byte) bool

	underWay sync.WaitGroup
	mu       sync.Mutex // guards accounts
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
func (o *Order) begin(did []byte) (wait <-chan struct{}, end func()) {
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

func (o *Order) end(did []byte, a *turns) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.n--; a.n == 0 {
		delete(o.accounts, string(did))
	}
}

// change notes an #identity. Call wait before carrying it out, then end; both are nil if no
// message of the account is under way.
func (o *Order) change(did []byte) (wait, end func()) {
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
func (o *Order) check(ctx context.Context, i *Item) {
	i.done = make(chan struct{})
	m := new(wire.Message)
	if i.Err != nil || wire.Parse(i.Frame, m) != nil {
		close(i.done)
		return
	}
	switch {
	case m.Type == wire.Identity:
		wait, end := o.change(m.DID)
		if wait == nil {
			o.Changed(m.DID)
			break
		}
		o.underWay.Go(func() {
			wait()
			o.Changed(m.DID)
			end()
			close(i.done)
		})
		return
	case (m.Type == wire.Commit || m.Type == wire.Sync) && (o.Owns == nil || o.Owns(m.DID)):
		wait, end := o.begin(m.DID)
		o.underWay.Go(func() {
			if wait != nil {
				<-wait
			}
			i.Ruling = o.Rule(ctx, m)
			end()
			close(i.done)
		})
		return
	}
	close(i.done)
}

// Bounds of the messages that are read ahead.
const (
	aheadMessages = 2048
	aheadBytes    = 32 << 20
)

// Ahead reads ahead with receive, in a goroutine of its own, and verifies the messages. next returns
// them in order. An error other than wire.ErrTooLarge ends the reading. stop ends it, too: it calls
// unblock, which must end a call of receive, and waits.
func (o *Order) Ahead(receive func() Item, unblock func()) (next func() Item, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	queue := make(chan *Item, aheadMessages)
	room := semaphore.NewWeighted(aheadBytes)
	weight := func(i *Item) int64 { return min(int64(len(i.Frame)), aheadBytes) }
	o.underWay.Go(func() {
		defer close(queue)
		for ended := false; !ended; {
			i := receive()
			i.Frame = bytes.Clone(i.Frame)
			if room.Acquire(ctx, weight(&i)) != nil {
				return
			}
			o.check(ctx, &i)
			ended = i.Err != nil && !errors.Is(i.Err, wire.ErrTooLarge)
			select {
			case queue <- &i:
			case <-ctx.Done():
				return
			}
		}
	})
	next = func() Item {
		i, ok := <-queue
		if !ok {
			return Item{Err: net.ErrClosed}
		}
		<-i.done
		room.Release(weight(i))
		return *i
	}
	return next, func() {
		cancel()
		unblock()
		o.underWay.Wait()
	}
}
