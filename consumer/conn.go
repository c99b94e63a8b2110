package consumer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/internal/outward"
)

// Limits, in bytes and time, for what a server sends before the connection is established:
// TLS certificates and HTTP headers, or an error page.
const handshakeBytes, handshakeTime = 256 << 10, 30 * time.Second

// Dial connects to a stream of events. guarded makes the connections to addresses of strangers; it is nil for an address
// that the operator named.
func Dial(ctx context.Context, address, userAgent string, guarded func(ctx context.Context, network, address string) (net.Conn, error)) (*websocket.Conn, error) {
	var under *bufferedConn
	dialer := websocket.Dialer{ReadBufferSize: 64 << 10, HandshakeTimeout: handshakeTime}
	if guarded == nil {
		guarded, dialer.Proxy = new(net.Dialer).DialContext, http.ProxyFromEnvironment
	}
	dialer.NetDialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := guarded(ctx, network, address)
		if err != nil {
			return nil, err
		}
		under = newBufferedConn(conn)
		return under, nil
	}
	if strings.HasPrefix(address, "ws:") {
		dialer.ReadBufferSize = smallBuffer
	}
	conn, resp, err := dialer.DialContext(ctx, address, http.Header{"User-Agent": {userAgent}}) //nolint:bodyclose // refused closes it
	if err != nil {
		return nil, refused(address, err, resp)
	}
	under.limit.Store(0)
	return conn, nil
}

// refused returns why there is no connection. resp is the server's answer if that is not a websocket, else nil.
func refused(address string, err error, resp *http.Response) error {
	if resp != nil && resp.Body != nil {
		err = fmt.Errorf("%w: %w", err, outward.AnswerOf(resp))
	}
	return fmt.Errorf("connecting to %s: %w", address, err)
}

// The buffer of the websocket library, and of a bufferedConn. The library's is small without TLS: it
// passes larger reads through, so a message is copied once instead of twice.
const smallBuffer, largeBuffer = 256, 256 << 10

// After a small read, the next read waits for gather, so that the system collects
// more bytes, unless more than muchAtOnce would arrive in that time. A relay sends
// each message in its own packet, and at the rate of the whole network a wake-up for
// each message is a third of the cost of an event (docs/decisions/0023).
const gather, muchAtOnce = 40 * time.Millisecond, 1 << 20

// A bufferedConn has a large read buffer of its own, so that one system call reads many messages.
type bufferedConn struct {
	net.Conn

	buf   []byte
	r, w  int
	read  time.Time // when buf was last filled
	since time.Time // when pause was last called
	bytes int       // read since then

	limit atomic.Int64    // bytes that may still be passed on; 0: no limit
	raw   syscall.RawConn // of the socket; nil if there is none
}

func newBufferedConn(conn net.Conn) *bufferedConn {
	c := &bufferedConn{Conn: conn, buf: make([]byte, largeBuffer)}
	if s, ok := conn.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.limit.Store(handshakeBytes)
	return c
}

var errHandshake = fmt.Errorf("consumer: the server sent more than %d KiB before the websocket handshake was complete", handshakeBytes>>10)

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
		c.wakeFrom(muchAtOnce)
		<-time.After(wait)
		c.wakeFrom(1)
	}
}

// wakeFrom lets the system wake the process only once so many bytes have arrived. A read returns those that are there.
func (c *bufferedConn) wakeFrom(bytes int) {
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) { wakeFrom(fd, bytes) })
	}
}
