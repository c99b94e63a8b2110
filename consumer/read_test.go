package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/internal/outward"
)

// A message is read completely however its bytes arrive, up to wire.MaxFrame, and the buffer
// stays bounded; a longer one is discarded, and the next one is read.
func TestReadAll(t *testing.T) {
	data := make([]byte, wire.MaxFrame+70_000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	var buf bytes.Buffer
	var limit io.LimitedReader
	for _, n := range []int{0, 1, 100, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 - 1, 1 << 20, wire.MaxFrame - 1, wire.MaxFrame} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":        func(r io.Reader) io.Reader { return r },
			"in halves":      iotest.HalfReader,
			"with the error": iotest.DataErrReader,
		} {
			got, err := readAll(wrap(bytes.NewReader(data[:n])), &buf, &limit)
			if err != nil || !bytes.Equal(got, data[:n]) {
				t.Errorf("%d bytes %s: %d bytes, %v", n, name, len(got), err)
			}
		}
	}
	if got, err := readAll(iotest.OneByteReader(bytes.NewReader(data[:1000])), &buf, &limit); err != nil || !bytes.Equal(got, data[:1000]) {
		t.Errorf("byte by byte: %d bytes, %v", len(got), err)
	}
	for _, more := range []int{1, 2, 70_000} {
		r := bytes.NewReader(data[:wire.MaxFrame+more])
		got, err := readAll(r, &buf, &limit)
		if !errors.Is(err, wire.ErrTooLarge) || got != nil || r.Len() != 0 || !strings.Contains(err.Error(), fmt.Sprint(wire.MaxFrame+more)) {
			t.Errorf("%d bytes too many: %d bytes, %v, %d left", more, len(got), err, r.Len())
		}
	}
	if most := 2*wire.MaxFrame + 64<<10; buf.Cap() > most {
		t.Errorf("the buffer has %d bytes, at most %d are needed", buf.Cap(), most)
	}
	broken := errors.New("reset by peer")
	for _, n := range []int{0, 10, 64 << 10, wire.MaxFrame} {
		if _, err := readAll(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken)), &buf, &limit); !errors.Is(err, broken) {
			t.Errorf("broken after %d bytes: %v", n, err)
		}
	}
}

// pipe returns both ends of a connection in memory; the reading one is buffered.
func pipe() (*bufferedConn, net.Conn) {
	r, w := net.Pipe()
	return newBufferedConn(r), w
}

// Whatever sizes the peer writes and the reader reads, the bytes are the same.
func TestBufferedConnKeepsBytes(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			conn, peer := pipe()
			conn.limit.Store(0)
			var sent bytes.Buffer
			writes := make([][]byte, 100)
			for i := range writes {
				most := []int{10, 1000, 100_000, largeBuffer + 5}[rng.IntN(4)]
				writes[i] = bytes.Repeat([]byte{byte(i), byte(seed)}, 1+rng.IntN(most)/2)
				sent.Write(writes[i])
			}
			go func() {
				for _, b := range writes {
					_, _ = peer.Write(b)
				}
				_ = peer.Close()
			}()
			var got bytes.Buffer
			for {
				p := make([]byte, 1+rng.IntN(50_000))
				n, err := conn.Read(p)
				got.Write(p[:n])
				if errors.Is(err, io.EOF) {
					break
				}
				must(t, err)
			}
			if !bytes.Equal(got.Bytes(), sent.Bytes()) {
				t.Errorf("read %d bytes of %d, or others", got.Len(), sent.Len())
			}
		})
	}
}

// After a small read, the next one waits for gather, and much data is not waited for.
func TestPauseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pipe()
		conn.limit.Store(0) // as after the handshake
		go func() {
			for range 50 {
				_, _ = peer.Write([]byte("little"))
				time.Sleep(time.Millisecond)
			}
			_, _ = peer.Write(bytes.Repeat([]byte("much"), 8<<20))
			_ = peer.Close()
		}()
		began := time.Now()
		if _, err := io.ReadFull(conn, make([]byte, 50*len("little"))); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 49*gather || took > 52*gather {
			t.Errorf("50 small writes took %v", took)
		}
		began = time.Now()
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*gather {
			t.Errorf("much data took %v", took)
		}
	})
}

// A refusal keeps the cause and the first 4 KiB of the answer.
func TestRefusal(t *testing.T) {
	cause := errors.New("bad handshake")
	for code, isBusy := range map[int]bool{429: true, 503: true, 500: false, 404: false, 200: false} {
		body := strings.NewReader(strings.Repeat("no newline ", 10_000))
		r := refused("ws://relay.example.com", cause, &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {"30"}}, Body: io.NopCloser(body)})
		a, ok := errors.AsType[*outward.Answer](r)
		if !ok || a.After != 30*time.Second || a.IsBusy() != isBusy || !errors.Is(r, cause) || !strings.Contains(r.Error(), "relay.example.com") || !strings.Contains(r.Error(), fmt.Sprint(code)) || len(r.Error()) > 1000 {
			t.Errorf("%d: %+v, %.200q", code, a, r.Error())
		}
		if read := body.Size() - int64(body.Len()); read > 8<<10 {
			t.Errorf("%d: %d bytes of the answer were read", code, read)
		}
	}
}

// FuzzParseRelay looks for addresses that keep a cursor, a fragment or a password, or change when they are parsed again.
func FuzzParseRelay(f *testing.F) {
	for s, want := range map[string]string{
		"wss://relay1.us-west.example.com":                     "relay1.us-west.example.com wss://relay1.us-west.example.com/xrpc/com.atproto.sync.subscribeRepos",
		"https://Relay.example.com/":                           "relay.example.com wss://Relay.example.com/xrpc/com.atproto.sync.subscribeRepos",
		"http://me:secret@localhost:2583":                      "localhost:2583 ws://localhost:2583/xrpc/com.atproto.sync.subscribeRepos",
		"ws://h/xrpc/com.atproto.sync.subscribeRepos?cursor=7": "h ws://h/xrpc/com.atproto.sync.subscribeRepos",
		"WS://[::1]:80/a/b?cursor=1&cursor=2&x=y#frag":         "[::1]:80 ws://[::1]:80/a/b?x=y",
		"relay.example.com":                                    "", "": "", "ftp://h": "", "ws://": "", "ws:///path": "", "ws://a b": "", "ws://\x00": "", "ws://%zz": "", "unix:/x": "",
	} {
		f.Add(s)
		source, address, err := ParseRelay(s)
		if got := source + " " + address; err == nil && got != want || err != nil && want != "" {
			f.Errorf("%q: %q, %v, want %q", s, got, err, want)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		source, address, err := ParseRelay(s)
		if err != nil {
			return
		}
		u, bad := url.Parse(address)
		again, same, err := ParseRelay(address)
		if bad != nil || u.User != nil || u.Fragment != "" || u.Query().Has("cursor") || err != nil || again != source || same != address {
			t.Errorf("%q: %q at %q, then %q at %q: %v, %v", s, source, address, again, same, err, bad)
		}
	})
}

// Packets that arrive while a bufferedConn gathers are read together, and a later one wakes the reader at once.
func TestGatherWakes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer func() { _ = client.Close() }()
	server, err := l.Accept()
	must(t, err)
	defer func() { _ = server.Close() }()
	c, p := newBufferedConn(client), make([]byte, 100)
	must(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	for i := range 5 {
		for range 3 { // after the first read of all, they come while it gathers
			_, err := server.Write([]byte("abc"))
			must(t, err)
		}
		for got := 0; got < 9; {
			n, err := c.Read(p)
			must(t, err)
			got += n
		}
		time.AfterFunc(2*gather, func() { _, _ = server.Write([]byte{byte(i)}) })
		began := time.Now()
		if n, err := c.Read(p); n != 1 || err != nil || p[0] != byte(i) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if passed := time.Since(began); passed < gather {
			t.Errorf("a byte came after %v", passed)
		}
	}
}
