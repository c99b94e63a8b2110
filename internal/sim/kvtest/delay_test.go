package kvtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo is a server that sends back what it gets. It returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String()
}

func dial(t *testing.T, to string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A message arrives whole and in order, each part of it delayed; parts that are under way together
// arrive together.
func TestDelayProxy(t *testing.T) {
	const delay = 100 * time.Millisecond
	var d atomic.Int64
	p, err := newDelayProxy(echo(t), &d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.close() })
	conn := dial(t, p.l.Addr().String())
	trip := func(parts int) time.Duration {
		t.Helper()
		var want []byte
		begin := time.Now()
		for n := range parts {
			part := bytes.Repeat([]byte{byte(n + 1)}, 1+n*700)
			want = append(want, part...)
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // so that the parts come one by one
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes came back changed, or not at all: %v", len(want), err)
		}
		return time.Since(begin)
	}
	trip(1) // connects
	d.Store(int64(delay))
	if took := trip(1); took < delay {
		t.Errorf("with a delay of %v, a round trip took %v", delay, took)
	}
	if took := trip(20); took < delay || took > 10*delay {
		t.Errorf("with a delay of %v, 20 messages at once took %v", delay, took)
	}
	d.Store(0)
	if took := trip(1); took >= delay {
		t.Errorf("without a delay, a round trip took %v", took)
	}
}

// Closing the proxy ends its connections; a server that is down closes them.
func TestDelayProxyCloses(t *testing.T) {
	var d atomic.Int64
	p, err := newDelayProxy(echo(t), &d)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, p.l.Addr().String())
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open after the proxy was closed")
	}
	down, err := newDelayProxy("127.0.0.1:1", &d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = down.close() })
	if _, err := dial(t, down.l.Addr().String()).Read(make([]byte, 1)); err == nil {
		t.Error("a connection to a server that is down stays open")
	}
}
