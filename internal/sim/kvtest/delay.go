package kvtest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// StartDelayed starts a cluster of one server behind a proxy, as if the network between it and its clients were
// slower: see SetDelay. It skips the test if FoundationDB is not installed, or not built in. The caller must call Remove.
func StartDelayed(t testing.TB) *Cluster {
	t.Helper()
	needBuilt(t)
	return begin(t, &Cluster{servers: make([]server, 1), delay: new(atomic.Int64)}, "single")
}

// SetDelay makes everything that clients send arrive that much later, from now on. Delays overlap: one round
// trip takes d longer, and so do many concurrent ones together.
func (c *Cluster) SetDelay(d time.Duration) { c.delay.Store(int64(d)) }

// delayProxy passes connections on to a server.
type delayProxy struct {
	l     net.Listener
	to    string
	delay *atomic.Int64
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool // nil: the proxy is closed
}

func newDelayProxy(to string, delay *atomic.Int64) (*delayProxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &delayProxy{l: l, to: to, delay: delay, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.pass(conn) })
		}
	})
	return p, nil
}

// keep makes close close a connection too. If the proxy is closed already, it closes the connection and returns false.
func (p *delayProxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *delayProxy) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

// pass passes a client's connection on until either side closes it.
func (p *delayProxy) pass(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.forget(client)
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.to)
	if err != nil || !p.keep(server) {
		return // the server is down
	}
	defer p.forget(server)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		p.forget(client)
	})
	p.late(server, client)
	p.forget(server)
	back.Wait()
}

// late copies what comes from a client to its server, each part delay after it came.
func (p *delayProxy) late(server io.Writer, client io.Reader) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 1024)
	go func() {
		defer close(parts)
		for {
			buf := make([]byte, 64<<10)
			n, err := client.Read(buf)
			if n > 0 {
				parts <- part{buf[:n], time.Now().Add(time.Duration(p.delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	var err error
	for part := range parts { // to the end, so that the reader ends
		if err == nil {
			<-time.After(time.Until(part.due))
			_, err = server.Write(part.bytes)
		}
	}
}

// close closes all connections, and waits until they have ended.
func (p *delayProxy) close() error {
	err := p.l.Close()
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	for conn := range conns {
		err = errors.Join(err, conn.Close())
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}
