package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"skein.blue/internal/clients"
)

// descriptors divides the process's file descriptors: up to half for the store's tables, up to a quarter for clients (a
// connection takes memory, too), a sixteenth for operators. The rest is for logs, manifests, and the connection to the relay.
type descriptors struct{ tables, api, admin int }

func divideDescriptors(n int) descriptors {
	return descriptors{min(2048, n/2), max(min(n/4, 4096), 8), max(min(n/16, 256), 4)}
}

// A limitedListener divides a number of connections among clients (clients.Pool). A connection is idle while it waits for
// a request, or for the rest of one. Each of a proxy's connections counts as that of a client of its own.
type limitedListener struct {
	net.Listener

	pool    *clients.Pool
	proxies clients.Proxies
	refused func()
	n       int // connections of proxies so far; for Accept
}

type limitedConn struct {
	net.Conn

	hold *clients.Hold
}

// Limit makes a server serve at most so many connections, at the listener that it returns. refused is called for each of the others.
func Limit(s *http.Server, ln net.Listener, most int, proxies clients.Proxies, refused func()) net.Listener {
	l := &limitedListener{Listener: ln, pool: clients.NewPool(int64(most)), proxies: proxies, refused: refused}
	s.Handler, s.ConnState, s.ConnContext = l.handler(s.Handler), l.state, l.context
	return l
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err // the server looks at its type
		}
		client := l.proxies.ClientAt(conn.RemoteAddr().String())
		if client == "" {
			l.n++
			client = "proxy " + strconv.Itoa(l.n)
		}
		if hold, ok := l.pool.Take(client, 1, func() { _ = conn.Close() }); ok { // the server notices
			hold.SetIdle(true)
			return &limitedConn{conn, hold}, nil
		}
		l.refused()
		_ = conn.Close() // without an answer
	}
}

// state is the ConnState function of the server. It leaves a connection with a request to handler.
func (l *limitedListener) state(conn net.Conn, s http.ConnState) {
	if c, ok := conn.(*limitedConn); ok && (s == http.StateNew || s == http.StateIdle) {
		c.hold.SetIdle(true)
	}
}

// context is the ConnContext function of the server.
func (l *limitedListener) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, l, conn)
}

// handler makes a connection busy, for h, when its request has come whole. Later versions of HTTP have other requests
// on the connection.
func (l *limitedListener) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(l).(*limitedConn); ok && r.ProtoMajor == 1 && r.Body != http.NoBody {
			r.Body = &arrivingBody{r.Body, c.hold}
		} else if ok {
			c.hold.SetIdle(false)
		}
		h.ServeHTTP(w, r)
	})
}

type arrivingBody struct {
	io.ReadCloser

	hold *clients.Hold
}

// Read implements io.Reader.
func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.hold.SetIdle(false)
	}
	return n, err // the handler looks at its type
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.hold.Give()
	return c.Conn.Close()
}
