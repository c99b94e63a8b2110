package xrpc

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// sendTimeout limits how long a client may take to receive a message.
const sendTimeout = 10 * time.Second

// A Stream is a response that sends server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) until it ends. Only one goroutine may use it.
type Stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// StartStream starts a stream.
func StartStream(w http.ResponseWriter, r *http.Request) *Stream {
	c := http.NewResponseController(w)
	// Before it answers, the server reads a body, with or without a deadline. If it comes late, the request's context ends.
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<10)); err == nil {
		_ = c.SetReadDeadline(time.Time{})
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer it
	w.WriteHeader(http.StatusOK)
	return &Stream{w, c}
}

// An Event is a server-sent message.
type Event struct {
	ID, Type string // may be ""
	Data     []byte // one line
}

// Send sends an event.
func (s *Stream) Send(e Event) error {
	var b []byte
	for _, field := range [][2]string{{"id", e.ID}, {"event", e.Type}, {"data", string(e.Data)}} {
		if field[1] != "" {
			b = fmt.Appendf(b, "%s: %s\n", field[0], field[1])
		}
	}
	return s.write(append(b, '\n'))
}

// Beat sends a comment, which clients ignore, so that both ends notice a broken connection.
func (s *Stream) Beat() error { return s.write([]byte(":\n\n")) }

func (s *Stream) write(b []byte) error {
	_ = s.c.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.c.Flush()
}
