package app

import (
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"skein.blue/internal/clients"
)

// openFiles returns how many file descriptors this process may open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

// descriptors divides the process's file descriptors: up to half for the store's tables, a quarter
// for clients, a sixteenth for operators. The rest is for logs, manifests, and the connection to
// the relay.
type descriptors struct{ tables, api, admin int }

func divideDescriptors(n int) descriptors {
	return descriptors{min(2048, n/2), max(n/4, 8), max(min(n/16, 256), 4)}
}

// A limitedListener limits the number of open connections, and divides them among clients. If
// there is one too many, it closes an idle one: of the clients that have idle connections, the one
// with the most connections loses the one that has been idle the longest. If all are busy, the
// client with the most loses its newest, unless the new one's client has nearly as many: then
// the new one is closed. A proxy's connections count as those of many clients.
type limitedListener struct {
	net.Listener

	most    int
	proxies clients.Proxies
	refused func()

	mu    sync.Mutex // guards the fields below
	conns map[*limitedConn]struct{}
	of    map[string]int // connections of each client
}

type limitedConn struct {
	net.Conn

	l      *limitedListener
	client string    // "" of a proxy
	since  time.Time // guarded by l.mu: when it became idle, or busy
	idle   bool      // guarded by l.mu: waiting for a request, or for the rest of one
}

func limitListener(ln net.Listener, most int, proxies clients.Proxies, refused func()) *limitedListener {
	return &limitedListener{Listener: ln, most: most, proxies: proxies, refused: refused, conns: map[*limitedConn]struct{}{}, of: map[string]int{}}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // the server looks at its type
		}
		c := &limitedConn{Conn: conn, l: l, client: l.proxies.ClientAt(conn.RemoteAddr().String()), idle: true, since: time.Now()}
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
	var victim *limitedConn
	if len(l.conns) >= l.most {
		if victim = l.victim(c); victim == nil {
			l.mu.Unlock()
			return false
		}
		l.remove(victim)
	}
	l.conns[c] = struct{}{}
	l.of[c.client]++
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close() // the server notices
	}
	return true
}

// victim returns the connection to close for another, nil if there is none. It is called with mu
// held.
func (l *limitedListener) victim(c *limitedConn) (v *limitedConn) {
	has := func(c *limitedConn) int {
		if c.client == "" {
			return 1
		}
		return l.of[c.client]
	}
	for other := range l.conns {
		switch {
		case v == nil || other.idle && !v.idle:
			v = other
		case other.idle != v.idle || has(other) < has(v):
		case has(other) > has(v) || other.idle == other.since.Before(v.since):
			v = other
		}
	}
	if !v.idle && has(v) <= 2*(has(c)+1) {
		return nil
	}
	return v
}

// remove is called with mu held. A connection may be removed twice.
func (l *limitedListener) remove(c *limitedConn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if l.of[c.client]--; l.of[c.client] == 0 {
		delete(l.of, c.client)
	}
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
		c.idle, c.since = false, time.Now()
	default: // closed: Close was called
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close() //nolint:wrapcheck // the server's
}
