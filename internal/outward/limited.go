package outward

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// ErrHandshake means that a server sent more than a connection may read before Unlimit.
var ErrHandshake = errors.New("the server sent too much before the handshake was complete")

// A LimitedConn is a connection that reads a limited number of bytes until Unlimit is called: certificates,
// headers, or what else comes before the limits of the protocol hold.
type LimitedConn struct {
	net.Conn

	left atomic.Int64 // 0: no limit
}

// Limit limits what is read from a connection.
func Limit(c net.Conn, most int64) *LimitedConn {
	l := &LimitedConn{Conn: c}
	l.left.Store(most)
	return l
}

// Unlimit ends the limit.
func (l *LimitedConn) Unlimit() { l.left.Store(0) }

// Read implements net.Conn.
func (l *LimitedConn) Read(p []byte) (n int, err error) {
	n, err = l.Conn.Read(p)
	if left := l.left.Load(); left > 0 {
		if left -= int64(n); left <= 0 {
			return 0, fmt.Errorf("%s: %w", l.RemoteAddr(), ErrHandshake)
		}
		l.left.Store(left)
	}
	return n, err // a connection must not wrap
}
