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
	Skip   bool // nobody wanted the message, and it was not checked
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
// account, and a signature takes longer than everything else. It verifies each account's messages one after the
// other: an #identity must not make a Verifier forget a key that an earlier commit of the account needs, and a
// later commit must not be checked with a key that the #identity replaces. aheadMessages and aheadBytes bound what
// is under way.
type Order struct {
	// Rule checks a Commit or a Sync.
	Rule func(ctx context.Context, m *wire.Message) Ruling
	// Changed says that an account's DID document may have changed.
	Changed func(did []byte)
	// Wants reports whether to check a Commit or a Sync. It is called in the order of the messages.
	Wants func(m *wire.Message) bool

	underWay sync.WaitGroup
	last     sync.Map // by account with messages under way: the last one's done
}

// check starts to verify a message, whose frame nobody else may change.
func (o *Order) check(ctx context.Context, i *Item) {
	i.done = make(chan struct{})
	m := new(wire.Message)
	switch {
	case i.Err != nil || wire.Parse(i.Frame, m) != nil:
	case m.Type != wire.Identity && m.Type != wire.Commit && m.Type != wire.Sync:
	case m.Type != wire.Identity && !o.Wants(m):
		i.Ruling.Skip = true
	default:
		before, _ := o.last.Swap(string(m.DID), i.done)
		o.underWay.Go(func() {
			if done, isBehind := before.(chan struct{}); isBehind {
				<-done
			}
			if m.Type == wire.Identity {
				o.Changed(m.DID)
			} else {
				i.Ruling = o.Rule(ctx, m)
			}
			o.last.CompareAndDelete(string(m.DID), i.done)
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
