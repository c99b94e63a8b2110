package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"skein/consumer/wire"
	"skein/graph"
	"skein/internal/frames"
)

const subscribePath = "/xrpc/com.atproto.sync.subscribeRepos"

// ParseRelay turns what a user gives as a relay, ws(s):// or http(s):// and a
// host, or a whole subscribeRepos URL, into the name of the source (the host)
// and the URL to connect to.
func ParseRelay(relay string) (source, address string, err error) {
	if !strings.Contains(relay, "://") {
		return "", "", fmt.Errorf("consumer: relay %q has no scheme: did you mean ws://%s, or wss://%s with TLS?", relay, relay, relay)
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
		if c.life.blocked.Load() {
			return c.awaitOperator(ctx)
		}
		if !first && c.metrics != nil {
			c.metrics.Reconnects.Inc()
		}
		before := c.events.Load()
		err := c.session(ctx)
		lasted := c.life.end()
		c.metrics.connected(false)
		c.metrics.ops(&c.decoder.Ops, &c.countedOps)
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
		case c.life.blocked.Load():
			continue
		}
		// A relay that sent something works, however little it was: a small PDS is
		// silent most of the time. An error frame counts for nothing.
		if lasted > backoff || c.events.Load() > before && !errors.Is(err, ErrRelay) {
			backoff = c.o.MinBackoff
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		if asked, ok := errors.AsType[*refusal](err); ok {
			wait = max(wait, asked.retryAfter)
		}
		args := []any{"error", err, "retry_in", wait.Round(time.Millisecond).String()}
		if c.o.StopOnError { // a replay: nobody asks
			c.log.Warn("no connection to the relay", args...)
		} else {
			c.log.Warn("no connection to the relay; queries are answered meanwhile", args...)
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
	c.life.begin()
	stop := c.watch(ctx, conn)
	err = c.readMessages(conn)
	stop()
	if !c.hasFrom { // what is held does not come again
		err = errors.Join(err, c.takeHeld())
	}
	if closeErr := conn.Close(); closeErr != nil && err == nil {
		err = closeErr
	}
	if errors.Is(err, errRestarted) || errors.Is(err, ErrRelay) && strings.Contains(err.Error(), "FutureCursor") {
		return c.futureCursor(ctx, err)
	}
	return err
}

// How much the relay may answer, and how long it may take, until the connection
// is made: TLS certificates and HTTP headers, or an error's page.
const handshakeBytes, handshakeTime = 256 << 10, 30 * time.Second

// dial connects to the relay.
func (c *Consumer) dial(ctx context.Context, address string) (*websocket.Conn, error) {
	var under *bufferedConn
	dialer := websocket.Dialer{
		ReadBufferSize: 64 << 10, HandshakeTimeout: handshakeTime, Proxy: http.ProxyFromEnvironment,
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialBuffered(ctx, network, address)
			under = conn
			if err != nil {
				return nil, err // and not a nil pointer in an interface
			}
			return conn, nil
		},
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
		return nil, newRefusal(address, err, resp)
	}
	under.limit.Store(0)
	return conn, nil
}

// A refusal says why there is no connection.
type refusal struct {
	address    string
	err        error
	said       string        // what the relay answered instead of a websocket
	retryAfter time.Duration // what it asked for, 0 if nothing
}

// Error implements error.
func (r *refusal) Error() string {
	return fmt.Sprintf("connecting to %s: %v%s", r.address, r.err, r.said)
}

// Unwrap lets errors.Is see the cause.
func (r *refusal) Unwrap() error { return r.err }

// maxRetryAfter bounds how long a relay can keep us away.
const maxRetryAfter = time.Hour

func newRefusal(address string, err error, resp *http.Response) *refusal {
	r := &refusal{address: address, err: err}
	if resp == nil || resp.Body == nil {
		return r
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		r.retryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		body = nil
	}
	r.said = " (" + resp.Status + brief(body) + ")"
	return r
}

// retryAfter reads the header of that name: seconds, or a date
// (https://www.rfc-editor.org/rfc/rfc9110#name-retry-after).
func retryAfter(v string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
		wait = time.Duration(min(max(seconds, 0), int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// brief says in a few words what a refusal's body says: an XRPC error, or a line
// of plain text. A page is left out.
func brief(body []byte) string {
	var xrpc struct{ Error, Message string }
	if json.Unmarshal(body, &xrpc) == nil && xrpc.Error != "" {
		return ": " + clip([]byte(strings.TrimSuffix(xrpc.Error+": "+xrpc.Message, ": ")))
	}
	const most = 120
	line, _, more := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if line = strings.TrimSpace(line); line == "" || more || len(line) > most || strings.HasPrefix(line, "<") {
		return ""
	}
	return ": " + line
}

// pingEvery is how often the relay is asked for a sign of life, unless the
// watchdog is to bark sooner.
const pingEvery = 7500 * time.Millisecond

// watch closes the connection when ctx ends, when it has been silent for
// longer than the watchdog allows, and, in a replay, when the silence means
// that the replay is over. Silence is no fault in itself: an idle PDS sends
// nothing. So it pings, and a pong is a sign of life. A message that does not
// become complete is silence, too. It also sees to what is held for its number.
func (c *Consumer) watch(ctx context.Context, conn *websocket.Conn) (stop func()) {
	conn.SetPongHandler(func(string) error { stamp(&c.life.sign); return nil })
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
			// What waits for the store is no silence of the relay's.
			if n := c.life.messages.Load(); n != messages || !c.waiting.Load() {
				messages = n
				stamp(&c.life.message)
				stamp(&c.life.sign)
			}
			if !c.waiting.Load() {
				continue
			}
			over := c.expire(now)
			if n := c.life.coming.Load(); n != coming {
				coming, comingSince = n, now
			}
			switch {
			case over:
				c.say("jump", slog.LevelWarn, "the relay's numbering jumped, and too little followed to believe it; asking again from the cursor", "cursor", int64(c.from))
			case c.o.Idle > 0 && coming == 0 && since(&c.life.message) >= c.o.Idle:
				c.silence.Store(true)
				over = true
			case c.o.Watchdog > 0 && coming != 0 && now.Sub(comingSince) >= c.o.Watchdog:
				c.log.Warn("a message of the relay's is not complete; connecting anew", "after", now.Sub(comingSince).Round(time.Second).String())
				over = true
			case c.o.Watchdog > 0 && since(&c.life.sign) >= c.o.Watchdog:
				c.log.Warn("the relay is silent and answers no ping; connecting anew", "for", since(&c.life.sign).Round(time.Second).String())
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

// closeNow ends a connection under its reader. The reader reports the error.
func closeNow(conn *websocket.Conn) {
	_ = conn.NetConn().Close()
}

// readMessages reads until the connection or the run ends.
func (c *Consumer) readMessages(conn *websocket.Conn) error {
	buf := make([]byte, 64<<10)
	c.silence.Store(false)
	defer c.waiting.Store(false)
	for n := 0; !c.ended.Load(); n++ {
		c.waiting.Store(true)
		kind, r, err := conn.NextReader()
		var frame []byte
		if err == nil {
			c.life.coming.Store(int64(n) + 1)
			frame, err = readAll(r, &buf)
			c.life.coming.Store(0)
		}
		tooLong := errors.Is(err, frames.ErrTooLarge)
		if err != nil && !tooLong {
			if c.silence.Load() {
				c.ended.Store(true)
				return c.settle()
			}
			if c.ended.Load() { // by an event that had been held
				return nil
			}
			return fmt.Errorf("reading from the relay: %w", err)
		}
		c.waiting.Store(false)
		c.life.messages.Add(1)
		if n%1024 == 0 {
			c.metrics.ops(&c.decoder.Ops, &c.countedOps)
		}
		switch {
		case tooLong:
			err = c.lost(tooLarge, err.Error())
		case kind != websocket.BinaryMessage:
			err = c.lost(textMessage, "a text message of "+strconv.Itoa(len(frame))+" bytes")
		default:
			err = c.handle(frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lost records a message that cannot be read.
func (c *Consumer) lost(reason wire.Reason, what string) error {
	c.taking.Lock()
	defer c.taking.Unlock()
	return c.gap(&graph.Gap{Reason: string(reason)}, what)
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

	limit atomic.Int64 // of the bytes that may still be handed on, if it is not 0
}

func dialBuffered(ctx context.Context, network, address string) (*bufferedConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &bufferedConn{Conn: conn, buf: make([]byte, largeBuffer)}
	c.limit.Store(handshakeBytes)
	return c, nil
}

var errHandshake = fmt.Errorf("the answer is larger than %d KiB before there is a connection: that is no relay", handshakeBytes>>10)

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
	if left := c.limit.Load(); left > 0 {
		if left -= int64(n); left <= 0 {
			return 0, errHandshake
		}
		c.limit.Store(left)
	}
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
