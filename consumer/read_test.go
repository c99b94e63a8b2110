package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"skein.blue/consumer/wire"
)

// A message is read completely however its bytes arrive, up to wire.MaxFrame, and the buffer
// stays bounded; a longer one is discarded, and the next one is read.
func TestReadAll(t *testing.T) {
	data := make([]byte, wire.MaxFrame+70_000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	buf := make([]byte, 64<<10)
	for _, n := range []int{0, 1, 100, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1<<20 - 1, 1 << 20, wire.MaxFrame - 1, wire.MaxFrame} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":        func(r io.Reader) io.Reader { return r },
			"in halves":      iotest.HalfReader,
			"with the error": iotest.DataErrReader,
		} {
			got, err := readAll(wrap(bytes.NewReader(data[:n])), &buf)
			if err != nil || !bytes.Equal(got, data[:n]) {
				t.Errorf("%d bytes %s: %d bytes, %v", n, name, len(got), err)
			}
		}
	}
	if got, err := readAll(iotest.OneByteReader(bytes.NewReader(data[:1000])), &buf); err != nil || !bytes.Equal(got, data[:1000]) {
		t.Errorf("byte by byte: %d bytes, %v", len(got), err)
	}
	for _, more := range []int{1, 2, 70_000} {
		r := bytes.NewReader(data[:wire.MaxFrame+more])
		got, err := readAll(r, &buf)
		if !errors.Is(err, wire.ErrTooLarge) || got != nil || r.Len() != 0 || !strings.Contains(err.Error(), fmt.Sprint(wire.MaxFrame+more)) {
			t.Errorf("%d bytes too many: %d bytes, %v, %d left", more, len(got), err, r.Len())
		}
	}
	if len(buf) != wire.MaxFrame {
		t.Errorf("the buffer has %d bytes, at most %d are needed", len(buf), wire.MaxFrame)
	}
	broken := errors.New("reset by peer")
	for _, n := range []int{0, 10, 64 << 10, wire.MaxFrame} {
		if _, err := readAll(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken)), &buf); !errors.Is(err, broken) {
			t.Errorf("broken after %d bytes: %v", n, err)
		}
	}
}

// pipe returns both ends of a connection in memory; the reading one is buffered.
func pipe() (*bufferedConn, net.Conn) {
	r, w := net.Pipe()
	return &bufferedConn{Conn: r, buf: make([]byte, largeBuffer)}, w
}

// Whatever sizes the peer writes and the reader reads, the bytes are the same.
func TestBufferedConnKeepsBytes(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			conn, peer := pipe()
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
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(got.Bytes(), sent.Bytes()) {
				t.Errorf("read %d bytes of %d, or others", got.Len(), sent.Len())
			}
		})
	}
}

// Until there is a connection, the peer may send handshakeBytes, whatever the sizes of its writes;
// afterwards any number.
func TestHandshakeLimit(t *testing.T) {
	for _, size := range []int{100, 4096, 100_000, handshakeBytes} {
		synctest.Test(t, func(t *testing.T) {
			conn, peer := pipe()
			conn.limit.Store(handshakeBytes)
			go func() {
				b := make([]byte, size)
				for {
					if _, err := peer.Write(b); err != nil {
						return
					}
				}
			}()
			n := int64(0)
			for p := make([]byte, 1000); ; {
				k, err := conn.Read(p)
				if n += int64(k); err != nil {
					if !errors.Is(err, errHandshake) {
						t.Error(err)
					}
					break
				}
			}
			if n >= handshakeBytes || n < handshakeBytes-1000 {
				t.Errorf("writes of %d bytes: %d bytes passed, the limit is %d", size, n, handshakeBytes)
			}
			_ = conn.Close()
		})
		synctest.Test(t, func(t *testing.T) {
			conn, peer := pipe()
			conn.limit.Store(handshakeBytes)
			go func() {
				_, _ = peer.Write(make([]byte, handshakeBytes/2))
				_, _ = peer.Write(make([]byte, 4*handshakeBytes))
				_ = peer.Close()
			}()
			if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			conn.limit.Store(0) // as after the handshake
			if b, err := io.ReadAll(conn); err != nil || len(b) != 4*handshakeBytes+handshakeBytes/2-1000 {
				t.Errorf("%d bytes after the handshake, %v", len(b), err)
			}
		})
	}
}

// The wait after a small read is bounded by gather, and much data is not waited for.
func TestPauseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pipe()
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
		if took := time.Since(began); took < 50*time.Millisecond || took > 52*gather {
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

// The text of a refusal has one line of at most a few hundred bytes, and no page.
func TestBrief(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for body, want := range map[string]string{
		"":                    "",
		"busy":                ": busy",
		"  busy \n":           ": busy",
		"one\ntwo":            "",
		"<html>":              "",
		"<!doctype html>\nno": "",
		long:                  "",
		`{"error":"RateLimitExceeded","message":"slow down"}`: ": RateLimitExceeded: slow down",
		`{"error":"RateLimitExceeded"}`:                       ": RateLimitExceeded",
		`{"error":""}`:                                        `: {"error":""}`,
		`{"message":"only"}`:                                  `: {"message":"only"}`,
		`{"error":5}`:                                         `: {"error":5}`,
		`{"error":"E","message":"` + long + `"}`:              ": E: " + long[:512-3] + "…",
		"[1,2]":                                               ": [1,2]",
		"\xff\xfe":                                            ": \xff\xfe",
	} {
		if got := brief([]byte(body)); got != want {
			t.Errorf("%.40q yields %.80q, want %.80q", body, got, want)
		}
	}
}

// A refusal keeps the cause, reads at most 4 KiB of the answer, and obeys Retry-After only if the
// relay is busy.
func TestRefusal(t *testing.T) {
	cause := errors.New("bad handshake")
	for _, c := range []struct {
		code  int
		after string
		want  time.Duration
	}{
		{429, "30", 30 * time.Second},
		{503, "30", 30 * time.Second},
		{500, "30", 0},
		{404, "30", 0},
		{200, "30", 0},
		{429, "", 0},
		{429, "soon", 0},
		{429, "-5", 0},
		{429, "0", 0},
		{429, "999999999999999999999", 0},
		{503, "9999999", time.Hour},
		{429, "Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{429, "Fri, 01 Jan 2100 00:00:00 GMT", time.Hour},
		{429, " 7 ", 7 * time.Second},
		{429, "1.5", 0},
	} {
		body := &countingBody{Reader: strings.NewReader(strings.Repeat("no newline ", 10_000))}
		r := newRefusal("ws://relay.example.com", cause, &http.Response{StatusCode: c.code, Status: fmt.Sprint(c.code, " Because"), Header: http.Header{"Retry-After": {c.after}}, Body: body})
		if r.retryAfter != c.want {
			t.Errorf("%d with Retry-After %q: wait %v, want %v", c.code, c.after, r.retryAfter, c.want)
		}
		if !errors.Is(r, cause) || !strings.Contains(r.Error(), "relay.example.com") || !strings.Contains(r.Error(), "Because") || len(r.Error()) > 1000 {
			t.Errorf("%d: %.200q", c.code, r.Error())
		}
		if body.n > 8<<10 || !body.closed {
			t.Errorf("%d: %d bytes of the answer were read; closed: %t", c.code, body.n, body.closed)
		}
	}
	if r := newRefusal("ws://x", cause, nil); !errors.Is(r, cause) || r.retryAfter != 0 {
		t.Errorf("without an answer: %v", r)
	}
}

type countingBody struct {
	io.Reader

	n      int
	closed bool
}

// Read implements io.Reader.
func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.n += n
	return n, err
}

// Close implements io.Closer.
func (b *countingBody) Close() error { b.closed = true; return nil }

// clip keeps short texts, and bounds long ones.
func TestClip(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512} {
		if s := strings.Repeat("a", n); clip([]byte(s)) != s {
			t.Errorf("%d bytes are changed", n)
		}
	}
	for _, n := range []int{513, 5 << 20} {
		if got := clip(bytes.Repeat([]byte("a"), n)); len(got) != 512+len("…") || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes become %d", n, len(got))
		}
	}
}

// Parsing the address of a relay again changes nothing, and no address keeps a cursor, a fragment
// or a password.
func TestParseRelayIsStable(t *testing.T) {
	for _, scheme := range []string{"ws", "wss", "http", "https", "WSS"} {
		for _, rest := range []string{"relay.example.com", "relay.example.com/", "RELAY.example.com:8080", "[::1]:2470", "me:secret@relay.example.com", "relay.example.com?cursor=5", "relay.example.com/xrpc/com.atproto.sync.subscribeRepos?cursor=5&x=y#frag", "relay.example.com/other/path", "127.0.0.1:1"} {
			source, address, err := ParseRelay(scheme + "://" + rest)
			if err != nil {
				t.Errorf("%s://%s: %v", scheme, rest, err)
				continue
			}
			if strings.Contains(address, "secret") || strings.Contains(address, "cursor") || strings.Contains(address, "frag") || strings.Contains(source, "@") || source != strings.ToLower(source) || !strings.HasPrefix(address, "ws") {
				t.Errorf("%s://%s is %q at %q", scheme, rest, source, address)
			}
			again, same, err := ParseRelay(address)
			if err != nil || again != source || same != address {
				t.Errorf("%q becomes %q at %q: %v", address, again, same, err)
			}
		}
	}
	for _, bad := range []string{"", "relay.example.com", "ftp://x", "ws://", "ws:///path", "://", "ws://a b", "ws://%zz", "unix:/x"} {
		if _, _, err := ParseRelay(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// FuzzParseRelay looks for panics, and for addresses that change when they are parsed again.
func FuzzParseRelay(f *testing.F) {
	for _, s := range []string{"wss://relay.example.com", "http://[::1]:80/x?cursor=1&cursor=2#y", "ws://a@b/", "ws://%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		source, address, err := ParseRelay(s)
		if err != nil {
			return
		}
		again, same, err := ParseRelay(address)
		if err != nil || again != source || same != address {
			t.Errorf("%q: %q at %q, then %q at %q: %v", s, source, address, again, same, err)
		}
	})
}
