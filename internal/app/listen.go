package app

import (
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// openFiles returns how many file descriptors this process may open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

// descriptors divides them: up to half for the store's tables, a quarter for clients, a sixteenth
// for operators. The rest is for logs, manifests, and the connection to the relay.
type descriptors struct{ tables, api, admin int }

func divideDescriptors(n int) descriptors {
	return descriptors{min(2048, n/2), max(n/4, 8), max(min(n/16, 256), 4)}
}

// A limitedListener limits the number of open connections. If there is one too many, it closes
// the connection that has been idle the longest. If all are busy, it closes the new one.
type limitedListener struct {
	net.Listener

	most    int
	refused func()

	mu    sync.Mutex // guards the fields below
	conns map[*limitedConn]struct{}
}

type limitedConn struct {
	net.Conn

	l     *limitedListener
	idle  bool      // guarded by l.mu: waiting for a request, or for the rest of one
	since time.Time // guarded by l.mu: when it became idle
}

func limitListener(ln net.Listener, most int, refused func()) *limitedListener {
	return &limitedListener{Listener: ln, most: most, refused: refused, conns: map[*limitedConn]struct{}{}}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // the server looks at its type
		}
		c := &limitedConn{Conn: conn, l: l, idle: true, since: time.Now()}
		if l.add(c) {
			return c, nil
		}
		l.refused()
		_ = conn.Close() // without an answer
	}
}

// add adds a connection, and reports whether there was room for it.
func (l *limitedListener) add(c *limitedConn) bool {
	l.mu.Lock()
	var oldest *limitedConn
	if len(l.conns) >= l.most {
		for other := range l.conns {
			if other.idle && (oldest == nil || other.since.Before(oldest.since)) {
				oldest = other
			}
		}
		if oldest == nil {
			l.mu.Unlock()
			return false
		}
		delete(l.conns, oldest)
	}
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close() // the server notices
	}
	return true
}

// state is the ConnState function of the server.
func (l *limitedListener) state(conn net.Conn, s http.ConnState) {
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s {
	case http.StateNew, http.StateIdle:
		c.idle, c.since = true, time.Now()
	case http.StateActive:
		c.idle = false
	default: // closed: Close was called
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // the server's
}
