package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
)

// A session is one connection to the relay.
type session struct {
	c      *Consumer
	conn   *websocket.Conn
	silent atomic.Bool // silence ended the session, and with it the replay
}

// pingEvery is how often to ping the relay, unless the watchdog needs pings more
// often.
const pingEvery = 7500 * time.Millisecond

// watch closes the connection when ctx ends, when the relay has been silent for
// longer than the watchdog allows, and, in a replay, when silence means that the
// replay is over. Silence alone is not a fault: an idle PDS sends nothing. So
// watch sends pings, and a pong counts as a sign of life. A message that stays
// incomplete counts as silence. watch also decides about events that were held for
// too long.
func (s *session) watch(ctx context.Context) (stop func()) {
	c := s.c
	s.conn.SetPongHandler(func(string) error { stamp(&c.link.sign); return nil })
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ping := pingEvery
		if c.o.Watchdog > 0 {
			ping = min(ping, max(c.o.Watchdog/8, 100*time.Millisecond))
		}
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		pinged := time.Now()
		var stepped time.Time
		var steps int64
		for {
			select {
			case <-quit:
				return
			case <-ctx.Done():
				s.close()
				return
			case <-ticker.C:
			}
			now := time.Now()
			// Waiting for the store is not silence of the relay.
			if n := c.link.steps.Load(); n != steps || !c.link.waiting.Load() {
				steps, stepped = n, now
				stamp(&c.link.message)
				stamp(&c.link.sign)
			}
			if !c.link.waiting.Load() {
				continue
			}
			over := c.expire(now)
			isComing := steps%2 == 1
			switch {
			case over:
				c.warn("jump", "held events were not confirmed, or not accepted, in time: the relay's sequence may have jumped; reconnecting from the cursor", "cursor", int64(c.from))
			case c.o.Idle > 0 && !isComing && since(&c.link.message) >= c.o.Idle:
				s.silent.Store(true)
				over = true
			case c.o.Watchdog > 0 && isComing && now.Sub(stepped) >= c.o.Watchdog:
				c.log.Warn("message from the relay incomplete; reconnecting", "after", now.Sub(stepped).Round(time.Second).String())
				over = true
			case c.o.Watchdog > 0 && since(&c.link.sign) >= c.o.Watchdog:
				c.log.Warn("relay silent and not answering pings; reconnecting", "for", since(&c.link.sign).Round(time.Second).String())
				over = true
			case now.Sub(pinged) >= ping:
				pinged = now
				over = s.conn.WriteControl(websocket.PingMessage, nil, now.Add(time.Second)) != nil
			}
			if over {
				s.close()
				return
			}
		}
	})
	return func() { close(quit); done.Wait() }
}

// close closes the connection while its reader still uses it. The reader reports the
// error.
func (s *session) close() { _ = s.conn.NetConn().Close() }

// run takes in messages until the connection or the run ends.
func (s *session) run(ctx context.Context) error {
	defer s.watch(ctx)()
	c := s.c
	err := c.takeAll(s.receiver(), s.close)
	switch {
	case !errors.Is(err, errRead):
		return err
	case s.silent.Load():
		c.ended.Store(true)
		return c.decide((*numbering).settle)
	case c.ended.Load(): // a held event ended the run
		return nil
	}
	return err
}

// receiver returns a function that waits for the next message. The message is valid until the
// next call.
func (s *session) receiver() func() proof.Item {
	link := &s.c.link
	var buf bytes.Buffer
	var limit io.LimitedReader
	return func() (i proof.Item) {
		link.waiting.Store(true)
		defer link.waiting.Store(false)
		var r io.Reader
		if i.Kind, r, i.Err = s.conn.NextReader(); i.Err == nil {
			link.steps.Add(1)
			i.Frame, i.Err = readAll(r, &buf, &limit)
			link.steps.Add(1)
		}
		return i
	}
}

// readAll reads a message into buf, through limit. It reads a message over wire.MaxFrame to its end, and discards it.
func readAll(r io.Reader, buf *bytes.Buffer, limit *io.LimitedReader) ([]byte, error) {
	buf.Reset()
	*limit = io.LimitedReader{R: r, N: wire.MaxFrame}
	_, err := buf.ReadFrom(limit)
	if err == nil && limit.N == 0 {
		var rest int64
		if rest, err = io.Copy(io.Discard, r); err == nil && rest > 0 {
			return nil, fmt.Errorf("%w: %d bytes", wire.ErrTooLarge, wire.MaxFrame+rest)
		}
	}
	return buf.Bytes(), err
}
