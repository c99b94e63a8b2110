package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/internal/frames"
)

const subscribePath = "/xrpc/com.atproto.sync.subscribeRepos"

// ParseRelay parses the address of a relay, as a user gives it: ws(s):// or
// http(s):// and a host, or a whole subscribeRepos URL. It returns the name of the
// source (the host) and the URL to connect to.
func ParseRelay(relay string) (source, address string, err error) {
	if !strings.Contains(relay, "://") {
		return "", "", fmt.Errorf("consumer: relay %q has no scheme: did you mean ws://%s, or wss://%s for TLS?", relay, relay, relay)
	}
	u, err := url.Parse(relay)
	if err != nil {
		return "", "", fmt.Errorf("consumer: relay %q: %w", relay, err)
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	case "ws", "wss":
	default:
		return "", "", fmt.Errorf("consumer: relay %q: must start with wss://, ws://, https:// or http://", relay)
	}
	if u.Host == "" {
		return "", "", fmt.Errorf("consumer: relay %q has no host", relay)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = subscribePath
	}
	query := u.Query()
	query.Del("cursor") // the consumer sets its own
	u.RawQuery, u.Fragment, u.User = query.Encode(), "", nil
	return strings.ToLower(u.Host), u.String(), nil
}

// readRelay connects, and reconnects, until the run ends.
func (c *Consumer) readRelay(ctx context.Context) error {
	backoff := c.o.MinBackoff
	for first := true; ; first = false {
		if c.link.blocked.Load() {
			return c.awaitOperator(ctx)
		}
		if !first && c.metrics != nil {
			c.metrics.Reconnects.Inc()
		}
		before := c.events.Load()
		err := c.session(ctx)
		lasted := c.link.end()
		c.metrics.connected(false)
		c.metrics.ops(c.decoder.Kinds, &c.decoder.Ops, &c.countedOps)
		if ctx.Err() != nil || c.ended.Load() {
			return nil //nolint:nilerr // the session's error is that it was ended
		}
		switch {
		case c.applyFailed() != nil:
			return c.applyFailed()
		case errors.Is(err, errStore):
			return err
		case errors.Is(err, ErrRelay) && c.o.StopOnError:
			return err
		case c.link.blocked.Load():
			continue
		}
		// A relay that sent anything works, even if it sent little: a small PDS is
		// silent most of the time. An error frame does not count.
		if lasted > backoff || c.events.Load() > before && !errors.Is(err, ErrRelay) {
			backoff = c.o.MinBackoff
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		if asked, ok := errors.AsType[*refusal](err); ok {
			wait = max(wait, asked.retryAfter)
		}
		args := []any{"error", err, "retry_in", wait.Round(time.Millisecond).String()}
		if c.o.StopOnError { // a replay answers no queries
			c.log.Warn("no connection to the relay", args...)
		} else {
			c.log.Warn("no connection to the relay; queries are still answered", args...)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		backoff = min(2*backoff, c.o.MaxBackoff)
	}
}

func (c *Consumer) applyFailed() error {
	c.feed.mu.Lock()
	defer c.feed.mu.Unlock()
	return c.feed.err
}

// session connects at the stored cursor, and reads until the connection ends.
func (c *Consumer) session(ctx context.Context) error {
	if err := c.feed.drain(); err != nil {
		return err
	}
	address := c.url
	c.expected = nil
	if stored, ok := c.store.Cursor(c.source); ok {
		c.from, c.hasFrom = stored.Seq, true
		if stored.Exact && stored.Seq > 0 && stored.Time.Unix() > 0 {
			c.expected = &stored
		}
	}
	if c.hasFrom {
		sep := "?"
		if strings.Contains(address, "?") {
			sep = "&"
		}
		from := int64(c.from)
		if c.expected != nil { // the relay sends the last applied event again, if its sequence is the same
			from--
		}
		address += sep + "cursor=" + strconv.FormatInt(from, 10)
	}
	c.resume(c.from)
	conn, err := c.dial(ctx, address)
	if err != nil {
		return err
	}
	if !c.hasFrom {
		if err := c.listen(ctx); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	c.log.Info("connected to the relay", "starts", c.startName())
	c.metrics.connected(true)
	c.link.begin()
	stop := c.watch(ctx, conn)
	err = c.readMessages(conn)
	stop()
	if !c.hasFrom { // the relay does not send held events again
		err = errors.Join(err, c.acceptHeld())
	}
	if closeErr := conn.Close(); closeErr != nil && err == nil {
		err = closeErr
	}
	if errors.Is(err, errReused) {
		return c.reused(ctx, err)
	}
	if errors.Is(err, errRestarted) || errors.Is(err, ErrRelay) && strings.Contains(err.Error(), "FutureCursor") {
		return c.futureCursor(ctx, err)
	}
	return err
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
func (c *Consumer) watch(ctx context.Context, conn *websocket.Conn) (stop func()) {
	conn.SetPongHandler(func(string) error { stamp(&c.link.sign); return nil })
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
		var comingSince time.Time
		var messages, coming int64
		for {
			select {
			case <-quit:
				return
			case <-ctx.Done():
				closeNow(conn)
				return
			case <-ticker.C:
			}
			now := time.Now()
			// Waiting for the store is not silence of the relay.
			if n := c.link.messages.Load(); n != messages || !c.waiting.Load() {
				messages = n
				stamp(&c.link.message)
				stamp(&c.link.sign)
			}
			if !c.waiting.Load() {
				continue
			}
			over := c.expire(now)
			if n := c.link.coming.Load(); n != coming {
				coming, comingSince = n, now
			}
			switch {
			case over:
				c.logLimited("jump", slog.LevelWarn, "held events were not confirmed, or not accepted, in time: the relay's sequence may have jumped; reconnecting from the cursor", "cursor", int64(c.from))
			case c.o.Idle > 0 && coming == 0 && since(&c.link.message) >= c.o.Idle:
				c.wentSilent.Store(true)
				over = true
			case c.o.Watchdog > 0 && coming != 0 && now.Sub(comingSince) >= c.o.Watchdog:
				c.log.Warn("message from the relay incomplete; reconnecting", "after", now.Sub(comingSince).Round(time.Second).String())
				over = true
			case c.o.Watchdog > 0 && since(&c.link.sign) >= c.o.Watchdog:
				c.log.Warn("relay silent and not answering pings; reconnecting", "for", since(&c.link.sign).Round(time.Second).String())
				over = true
			case now.Sub(pinged) >= ping:
				pinged = now
				over = conn.WriteControl(websocket.PingMessage, nil, now.Add(time.Second)) != nil
			}
			if over {
				closeNow(conn)
				return
			}
		}
	})
	return func() { close(quit); done.Wait() }
}

// closeNow closes a connection that its reader still uses. The reader reports the
// error.
func closeNow(conn *websocket.Conn) {
	_ = conn.NetConn().Close()
}

// readMessages reads until the connection or the run ends.
func (c *Consumer) readMessages(conn *websocket.Conn) error {
	c.wentSilent.Store(false)
	defer c.waiting.Store(false)
	receive := c.receiver(conn)
	if c.o.Verifier != nil {
		var stop func()
		receive, stop = c.verifying(conn, receive)
		defer stop()
	}
	for n := 0; !c.ended.Load(); n++ {
		p := receive()
		kind, frame, err := p.kind, p.frame, p.err
		tooLong := errors.Is(err, frames.ErrTooLarge)
		if err != nil && !tooLong {
			if c.wentSilent.Load() {
				c.ended.Store(true)
				return c.settle()
			}
			if c.ended.Load() { // a held event ended the run
				return nil
			}
			return fmt.Errorf("reading from the relay: %w", err)
		}
		if n%1024 == 0 {
			c.metrics.ops(c.decoder.Kinds, &c.decoder.Ops, &c.countedOps)
		}
		switch {
		case tooLong:
			err = c.lost(tooLarge, err.Error())
		case kind != websocket.BinaryMessage:
			err = c.lost(textMessage, "a text message of "+strconv.Itoa(len(frame))+" bytes")
		default:
			err = c.handleVerified(frame, p.ruling)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receiver returns a function that waits for the next message. The message is valid until the
// next call.
func (c *Consumer) receiver(conn *websocket.Conn) func() pending {
	buf := make([]byte, 64<<10)
	n := int64(0)
	return func() (p pending) {
		n++
		c.waiting.Store(true)
		defer c.waiting.Store(false)
		var r io.Reader
		if p.kind, r, p.err = conn.NextReader(); p.err == nil {
			c.link.coming.Store(n)
			p.frame, p.err = readAll(r, &buf)
			c.link.coming.Store(0)
		}
		if p.err == nil || errors.Is(p.err, frames.ErrTooLarge) {
			c.link.messages.Add(1)
		}
		return p
	}
}

// lost records an unreadable message.
func (c *Consumer) lost(reason wire.Reason, what string) error {
	c.intake.Lock()
	defer c.intake.Unlock()
	return c.gap(&batch.Gap{Reason: string(reason)}, what)
}

// readAll reads a message into buf, which grows to the largest message seen. It
// reads a message over frames.MaxFrame to its end, and discards it.
func readAll(r io.Reader, buf *[]byte) ([]byte, error) {
	n := 0
	for {
		if n == len(*buf) {
			if n >= frames.MaxFrame {
				rest, err := io.Copy(io.Discard, r)
				if err != nil || rest == 0 {
					return *buf, err
				}
				return nil, fmt.Errorf("%w: %d bytes", frames.ErrTooLarge, int64(n)+rest)
			}
			*buf = append(*buf, make([]byte, min(len(*buf), frames.MaxFrame-n))...)
		}
		m, err := r.Read((*buf)[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return (*buf)[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
}
