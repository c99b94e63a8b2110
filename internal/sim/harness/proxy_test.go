package harness_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Proxy forwards connections to a loopback address, and damages them: it cuts
// them anywhere, even within a frame, and stalls.
type Proxy struct {
	Addr string // its own address

	l      net.Listener
	target string
	mu     sync.Mutex
	rng    *rand.Rand
	conns  map[net.Conn]struct{}
	gentle bool
	cuts   int
	stalls int
}

// NewProxy starts to forward connections.
func NewProxy(target string, seed uint64) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: l.Addr().String(), l: l, target: target, rng: rand.New(rand.NewPCG(seed, 4)), conns: map[net.Conn]struct{}{}}
	go p.accept()
	return p, nil
}

// Gentle switches the damage off or on.
func (p *Proxy) Gentle(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gentle = yes
}

// Done returns how many connections were cut, and how many stalled.
func (p *Proxy) Done() (cuts, stalls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts, p.stalls
}

// Close ends the proxy.
func (p *Proxy) Close() {
	_ = p.l.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		go p.pass(in, out, false)
		go p.pass(out, in, true)
	}
}

// pass copies from one connection to another, and damages the copy if rough.
func (p *Proxy) pass(from, to net.Conn, rough bool) {
	defer func() {
		_, _ = from.Close(), to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		delete(p.conns, to)
		p.mu.Unlock()
	}()
	buf := make([]byte, 1500)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		cut, stall := p.fate(rough)
		if cut {
			n /= 2
		}
		if _, err := to.Write(buf[:n]); err != nil || cut {
			return
		}
		<-time.After(stall)
	}
}

// fate decides whether to cut or stall after some bytes.
func (p *Proxy) fate(rough bool) (cut bool, stall time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !rough || p.gentle {
		return false, 0
	}
	switch n := p.rng.IntN(1000); {
	case n < 6:
		p.cuts++
		return true, 0
	case n < 8:
		p.stalls++
		return false, 5 * time.Second
	}
	return false, 0
}
