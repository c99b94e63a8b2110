package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"skein/internal/frames"
)

const subscribePath = "/xrpc/com.atproto.sync.subscribeRepos"

// ParseRelay turns what a user gives as a relay, ws(s):// or http(s):// and a
// host, or a whole subscribeRepos URL, into the name of the source (the host)
// and the URL to connect to.
func ParseRelay(relay string) (source, address string, err error) {
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
		return "", "", fmt.Errorf("consumer: relay %q: begin it with wss://, ws://, https:// or http://", relay)
	}
	if u.Host == "" {
		return "", "", fmt.Errorf("consumer: relay %q names no host", relay)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = subscribePath
	}
	query := u.Query()
	query.Del("cursor") // ours
	u.RawQuery, u.Fragment, u.User = query.Encode(), "", nil
	return strings.ToLower(u.Host), u.String(), nil
}

// readRelay connects, and connects again, until the run is over.
func (c *Consumer) readRelay(ctx context.Context) error {
	backoff := c.o.MinBackoff
	for first := true; ; first = false {
		if !first {
			if c.metrics != nil {
				c.metrics.Reconnects.Inc()
			}
		}
		before := c.events.Load()
		err := c.session(ctx)
		c.metrics.connected(false)
		c.metrics.ops(&c.decoder.Ops, &c.countedOps)
		if ctx.Err() != nil || c.ended {
			return nil //nolint:nilerr // the session's error is that it was ended
		}
		switch {
		case c.applyFailed() != nil:
			return c.applyFailed()
		case errors.Is(err, ErrRelay) && c.o.StopOnError:
			return err
		}
		if c.events.Load() > before+10 {
			backoff = c.o.MinBackoff
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		retry := wait.Round(time.Millisecond).String()
		if c.o.StopOnError { // a replay: nobody asks
			c.log.Warn("no connection to the relay", "error", err, "retry_in", retry)
		} else {
			c.log.Warn("no connection to the relay; queries are answered meanwhile", "error", err, "retry_in", retry)
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

// session is one connection, from the stored cursor to its end.
func (c *Consumer) session(ctx context.Context) error {
	if err := c.feed.drain(); err != nil {
		return err
	}
	address := c.url
	if stored, ok := c.store.Cursor(c.source); ok {
		c.from, c.hasFrom = stored.Seq, true
	}
	if c.hasFrom {
		sep := "?"
		if strings.Contains(address, "?") {
			sep = "&"
		}
		address += sep + "cursor=" + strconv.FormatInt(int64(c.from), 10)
	}
	c.resume(c.from)
	dialer := websocket.Dialer{
		ReadBufferSize: 64 << 10, HandshakeTimeout: 30 * time.Second, Proxy: http.ProxyFromEnvironment, NetDialContext: dialBuffered,
	}
	if strings.HasPrefix(address, "ws:") {
		dialer.ReadBufferSize = smallBuffer
	}
	header := http.Header{}
	if c.o.UserAgent != "" {
		header.Set("User-Agent", c.o.UserAgent)
	}
	conn, resp, err := dialer.DialContext(ctx, address, header)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w%s", address, err, said(resp))
	}
	c.log.Info("connected to the relay", "starts", c.startName())
	c.metrics.connected(true)
	stop := c.watch(ctx, conn)
	err = c.readMessages(conn)
	stop()
	if closeErr := conn.Close(); closeErr != nil && err == nil {
		err = closeErr
	}
	if errors.Is(err, ErrRelay) && strings.Contains(err.Error(), "FutureCursor") {
		return c.futureCursor(ctx, err)
	}
	return err
}

// said returns what the relay answered instead of a websocket.
func said(resp *http.Response) string {
	if resp == nil || resp.Body == nil {
		return ""
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 512))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return ""
	}
	return fmt.Sprintf(" (%s: %s)", resp.Status, bytes.TrimSpace(body))
}

// futureCursor is what follows when the relay has never reached our cursor:
// its sequence has begun anew, or it is not the relay that it was. Nothing is
// skipped on our own account.
func (c *Consumer) futureCursor(ctx context.Context, err error) error {
	if derr := c.feed.drain(); derr != nil { // the store is the applier's
		return errors.Join(err, derr)
	}
	if serr := c.store.SetFuture(ctx, c.source); serr != nil {
		return errors.Join(err, serr)
	}
	c.log.Error("the relay says that our cursor lies in its future: its sequence has begun anew, or this is another relay under the same name. "+
		"Nothing is indexed until an operator decides: check --relay, or restart with --cursor 0 --force-cursor to take all that this relay still has",
		"cursor", int64(c.from))
	return err
}

// watch closes the connection when ctx ends, when it has been silent for
// longer than the watchdog allows, and, in a replay, when the silence means
// that the replay is over. Silence is no fault in itself: an idle PDS sends
// nothing. So it pings, and a pong is a sign of life.
func (c *Consumer) watch(ctx context.Context, conn *websocket.Conn) (stop func()) {
	var alive atomic.Int64
	conn.SetPongHandler(func(string) error { alive.Add(1); return nil })
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		every := 100 * time.Millisecond
		if c.o.Idle == 0 {
			every = max(c.o.Watchdog/8, 100*time.Millisecond)
			if c.o.Watchdog == 0 {
				every = time.Hour
			}
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		lastMessage, lastSign := time.Now(), time.Now()
		var events, signs, bytes int64
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
			if !c.waiting.Load() { // for the store: that is no silence of the relay's
				lastMessage, lastSign = now, now
				continue
			}
			if e, b := c.events.Load(), c.bytes.Load(); e != events || b != bytes {
				events, bytes, lastMessage, lastSign = e, b, now, now
			}
			if s := alive.Load(); s != signs {
				signs, lastSign = s, now
			}
			switch {
			case c.o.Idle > 0 && now.Sub(lastMessage) >= c.o.Idle:
				c.silence.Store(true)
				closeNow(conn)
				return
			case c.o.Watchdog > 0 && now.Sub(lastSign) >= c.o.Watchdog:
				c.log.Warn("the relay is silent and answers no ping; connecting anew", "for", now.Sub(lastSign).Round(time.Second).String())
				closeNow(conn)
				return
			case c.o.Watchdog > 0:
				if err := conn.WriteControl(websocket.PingMessage, nil, now.Add(time.Second)); err != nil {
					closeNow(conn)
					return
				}
			}
		}
	})
	return func() { close(quit); done.Wait() }
}

// closeNow ends a connection under its reader. The reader reports the error.
func closeNow(conn *websocket.Conn) {
	_ = conn.NetConn().Close()
}

// readMessages reads until the connection or the run ends.
func (c *Consumer) readMessages(conn *websocket.Conn) error {
	buf := make([]byte, 64<<10)
	c.silence.Store(false)
	defer c.waiting.Store(false)
	for n, held := 0, false; !c.ended; n++ {
		if held || c.held != nil {
			held = c.held != nil
			if err := holdDeadline(conn, held); err != nil {
				return fmt.Errorf("reading from the relay: %w", err)
			}
		}
		c.waiting.Store(true)
		kind, r, err := conn.NextReader()
		if err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() && c.held != nil {
				err = errors.Join(err, c.release())
			}
			if c.silence.Load() {
				c.ended = true
				return nil
			}
			return fmt.Errorf("reading from the relay: %w", err)
		}
		frame, err := readAll(r, &buf)
		c.waiting.Store(false)
		if n%1024 == 0 {
			c.metrics.ops(&c.decoder.Ops, &c.countedOps)
		}
		switch {
		case errors.Is(err, frames.ErrTooLarge):
			err = c.gap(tooLarge, err.Error())
		case err != nil:
			return fmt.Errorf("reading from the relay: %w", err)
		case kind != websocket.BinaryMessage:
			err = c.gap(textMessage, "a text message of "+strconv.Itoa(len(frame))+" bytes")
		default:
			err = c.handle(frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holdTime is how long an event with an implausible seq waits for the next one
// to confirm it. A relay that is silent for so long has nothing else to say.
const holdTime = time.Second

// holdDeadline makes the next read end after holdTime if an event is held. A
// connection whose read has timed out is of no more use, and is made anew.
func holdDeadline(conn *websocket.Conn, held bool) error {
	var t time.Time
	if held {
		t = time.Now().Add(holdTime)
	}
	return conn.SetReadDeadline(t)
}

// A connection is read through a buffer of ours, so that the system is asked for
// much at a time. Without TLS the library's own is small: what is larger than that
// it hands through, so that a message is copied once and not twice.
const smallBuffer, largeBuffer = 256, 256 << 10

// gather is how long after a small read the next one waits, while the system
// gathers what comes, unless so much comes that it would be over muchAtOnce. A
// relay sends each message for itself, and at the network's rate to be woken for
// each is a third of what an event costs (docs/performance.md).
const gather, muchAtOnce = 40 * time.Millisecond, 1 << 20

type bufferedConn struct {
	net.Conn

	buf   []byte
	r, w  int
	read  time.Time // when buf was filled last
	since time.Time // when pause was called last
	bytes int       // read since then
}

func dialBuffered(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &bufferedConn{Conn: conn, buf: make([]byte, largeBuffer)}, nil
}

// Read implements net.Conn.
func (c *bufferedConn) Read(p []byte) (n int, err error) {
	if c.r == c.w {
		if c.w < len(c.buf)/4 {
			c.pause()
		}
		c.r = 0
		c.w, err = c.Conn.Read(c.buf)
		c.read = time.Now()
		c.bytes += c.w
		if c.w == 0 {
			return 0, err
		}
	}
	n = copy(p, c.buf[c.r:c.w])
	c.r += n
	return n, nil
}

// pause waits after a small read.
func (c *bufferedConn) pause() {
	now := time.Now()
	passed := max(now.Sub(c.since), time.Microsecond)
	busy := float64(c.bytes)*float64(gather)/float64(passed) > muchAtOnce
	c.since, c.bytes = now, 0
	if wait := gather - now.Sub(c.read); wait > 0 && !busy && !c.read.IsZero() {
		<-time.After(wait)
	}
}

// readAll reads a message into buf, which grows to the largest message seen.
// A message over frames.MaxFrame is read to its end and thrown away.
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
