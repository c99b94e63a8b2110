package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
)

// readFile reads the file to its end.
func (c *Consumer) readFile(ctx context.Context) (err error) {
	f, err := os.Open(c.o.Frames)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if st, err := f.Stat(); err == nil {
		c.progress.size.Store(st.Size())
	}
	return c.readFrames(ctx, wire.NewReader(f).Next)
}

// readFrames takes in the frames that next returns, until io.EOF, and then what is held. It returns an
// error if ctx ends first.
func (c *Consumer) readFrames(ctx context.Context, next func() ([]byte, error)) error {
	c.resume(c.from)
	pace := rate.NewLimiter(rate.Limit(c.o.Rate), max(1, int(c.o.Rate/50))) // so it catches up after a stall of 20 ms
	err := c.takeAll(func() (i proof.Item) {
		if i.Err = ctx.Err(); i.Err == nil && c.o.Rate > 0 {
			i.Err = pace.Wait(ctx)
		}
		if i.Err == nil {
			i.Frame, i.Err = next()
		}
		return i
	}, func() {})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, c.decide((*numbering).settle))
}

// errRead is wrapped by the errors of reading a message.
var errRead = errors.New("consumer: reading")

// takeAll takes in the messages that receive returns, until an error or the end of the run. unblock makes a
// running receive return.
func (c *Consumer) takeAll(receive func() proof.Item, unblock func()) error {
	next, stop := c.verified(func() proof.Item { defer c.link.pending.Add(1); return receive() }, unblock)
	defer stop()
	for !c.ended.Load() {
		i := next()
		var err error
		switch {
		case errors.Is(i.Err, wire.ErrTooLarge):
			err = c.lost(tooLarge, i.Err.Error())
		case i.Err != nil:
			return fmt.Errorf("%w %s: %w", errRead, c.source, i.Err)
		case i.Kind == websocket.TextMessage:
			err = c.lost(textMessage, fmt.Sprintf("a text message of %d bytes", len(i.Frame)))
		default:
			err = c.handle(i.Frame, i.Ruling)
		}
		if err != nil {
			return err
		}
		c.link.pending.Add(-1)
	}
	return nil
}
