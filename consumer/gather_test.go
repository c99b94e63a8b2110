package consumer

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// countedConn counts reads.
type countedConn struct {
	net.Conn

	reads int
}

func (c *countedConn) Read(p []byte) (int, error) { c.reads++; return c.Conn.Read(p) }

// Little data that a peer sends every millisecond is read intact, a few times a
// second; much data is read at once.
func TestGather(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var sent bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for i := range 300 {
			<-ticker.C
			message := bytes.Repeat([]byte{byte(i)}, 100)
			sent.Write(message)
			if _, err := conn.Write(message); err != nil {
				break
			}
		}
		much := bytes.Repeat([]byte("much"), 4<<20)
		sent.Write(much)
		_, _ = conn.Write(much)
		_ = conn.Close()
	}()
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedConn{Conn: plain}
	conn := newBufferedConn(counted)
	conn.limit.Store(0)
	begun := time.Now()
	little := make([]byte, 300*100)
	if _, err := io.ReadFull(conn, little); err != nil {
		t.Fatal(err)
	}
	passed, reads := time.Since(begun), counted.reads
	if most := int(passed/gather) + 2; reads > most {
		t.Errorf("%d reads in %v, want at most %d", reads, passed, most)
	}
	begun = time.Now()
	rest, err := io.ReadAll(conn)
	<-done
	if err != nil || !bytes.Equal(append(little, rest...), sent.Bytes()) {
		t.Errorf("read %d bytes of %d, %v", len(little)+len(rest), sent.Len(), err)
	}
	if passed := time.Since(begun); passed > time.Duration(counted.reads-reads)*gather/2+time.Second {
		t.Errorf("%d reads of the large part took %v", counted.reads-reads, passed)
	}
	t.Logf("%d reads of the small messages in %v, %d of the large part", reads, passed, counted.reads-reads)
}
