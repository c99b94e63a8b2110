package synth

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
)

// A Stream is a source of messages to serve.
type Stream interface {
	// Subscribe starts a subscription after a cursor, or live.
	Subscribe(cursor int64, hasCursor bool) Feed
}

// A Feed has the messages for one subscriber.
type Feed interface {
	// Next waits for messages and appends some to s. It returns ErrEnd or a Refusal at the
	// end; appended messages are still sent.
	Next(s *Sender) error
	// Stalled reports whether the relay is stalled, and answers no pings.
	Stalled() bool
	// Close is called when the subscriber is gone. It ends Next.
	Close()
}

// ErrEnd is returned by a Feed at its end.
var ErrEnd = errors.New("synth: end of the subscription")

// A Refusal ends a subscription with an error frame.
type Refusal struct{ Name, Text string }

// Error implements error.
func (r *Refusal) Error() string { return r.Name + ": " + r.Text }

// A Sender gathers messages for one system call.
type Sender struct{ buf []byte }

// Append appends the message that encode appends to its argument. A server's messages are
// not masked (RFC 6455, 5.1), so Sender can write many at once instead of one by one
// through the library.
func (s *Sender) Append(encode func(dst []byte) []byte) {
	const usual = 4 // length of the head of a message of 126 to 65,535 bytes
	start := len(s.buf)
	s.buf = encode(append(s.buf, make([]byte, usual)...))
	body := s.buf[start+usual:]
	var head [10]byte
	if h := appendHead(head[:0], opBinary, len(body)); len(h) == usual {
		copy(s.buf[start:], h)
	} else {
		s.buf = append(s.buf[:start], append(h, body...)...)
	}
}

// AppendText appends a text message, which real relays never send.
func (s *Sender) AppendText(text string) {
	s.buf = append(appendHead(s.buf, opText, len(text)), text...)
}

const opText, opBinary = 1, 2

func appendHead(dst []byte, op byte, n int) []byte {
	const final = 0x80
	switch {
	case n < 126:
		return append(dst, final|op, byte(n))
	case n < 1<<16:
		return append(dst, final|op, 126, byte(n>>8), byte(n))
	}
	return append(dst, final|op, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// Serve serves a stream to one subscriber.
func Serve(w http.ResponseWriter, req *http.Request, stream Stream) {
	text := req.URL.Query().Get("cursor")
	cursor, err := strconv.ParseInt(text, 10, 64)
	if text != "" && (err != nil || cursor < 0) {
		http.Error(w, fmt.Sprintf("cursor %q is not a sequence number", text), http.StatusBadRequest)
		return
	}
	upgrader := websocket.Upgrader{WriteBufferSize: 4 << 10}
	conn, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		return
	}
	unpaced(conn.NetConn())
	feed := stream.Subscribe(cursor, text != "")
	gone := make(chan struct{})
	go listen(conn, feed, gone)
	send(conn, feed, gone)
	_ = conn.Close() // the client will notice
	<-gone
}

// listen answers pings until the client is gone.
func listen(conn *websocket.Conn, feed Feed, gone chan struct{}) {
	defer close(gone)
	conn.SetPingHandler(func(data string) error {
		if feed.Stalled() {
			return nil
		}
		// Not through the library, which would set a deadline for the writes of send.
		const pong = 0x8a
		_, err := conn.NetConn().Write(append([]byte{pong, byte(len(data))}, data...))
		return err
	})
	for {
		if _, _, err := conn.NextReader(); err != nil {
			feed.Close()
			return
		}
	}
}

// send sends messages until the client is gone, or has done something wrong.
func send(conn *websocket.Conn, feed Feed, gone chan struct{}) {
	var s Sender
	for {
		s.buf = s.buf[:0]
		end := feed.Next(&s)
		refusal, refused := errors.AsType[*Refusal](end)
		if refused {
			s.Append(func(dst []byte) []byte {
				return CBOR(CBOR(dst, Map{{Key: "op", Value: -1}}), Map{{Key: "error", Value: refusal.Name}, {Key: "message", Value: refusal.Text}})
			})
		}
		if err := conn.NetConn().SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			return
		}
		// Whole messages in one call, because listen writes pongs in between.
		if _, err := conn.NetConn().Write(s.buf); err != nil {
			return
		}
		if refused {
			// Closing the connection at once would lose the messages on the way.
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, refusal.Name), time.Now().Add(time.Second))
			select {
			case <-gone:
			case <-time.After(time.Second):
			}
		}
		if end != nil {
			return
		}
	}
}

// InfoFrame returns an info message.
func InfoFrame(name, text string) []byte {
	return Message("#info", Map{{"name", name}, {"message", text}})
}
