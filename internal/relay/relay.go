// Package relay is a relay on loopback: it serves
// com.atproto.sync.subscribeRepos from recorded or made frames, with cursor
// replay, and misbehaves on request. It does not look into the frames but for
// their sequence numbers.
package relay

import (
	"errors"
	"net/http"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"skein/consumer/wire"
)

// Relay serves frames. It implements http.Handler.
type Relay struct {
	// DropAfter, if set, is asked at each connection after how many messages
	// it is to be cut. 0 is never. Set it before the first connection.
	DropAfter func() int
	// First, if set, is sent before anything else on each connection. With
	// FirstOnce, only on the first connection, which is then closed: an error
	// frame, say.
	First     []byte
	FirstOnce bool
	// Text, if set, is sent as a text message at the start of each connection.
	Text string

	mu          sync.Mutex
	frames      []frame
	more        chan struct{} // closed when frames grows
	connections int
	cursors     []string // as asked for, in the order of the connections
}

type frame struct {
	seq  int64
	data []byte
}

// New returns a relay that has these frames. A frame without a sequence number
// is served behind the one before it.
func New(frames [][]byte) *Relay {
	r := &Relay{more: make(chan struct{})}
	r.Append(frames...)
	return r
}

// Append adds frames: live ones, for who is connected.
func (r *Relay) Append(frames ...[]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var m wire.Message
	for _, f := range frames {
		seq := int64(0)
		if n := len(r.frames); n > 0 {
			seq = r.frames[n-1].seq
		}
		if wire.Parse(f, &m) == nil && m.Seq > 0 {
			seq = max(seq, int64(m.Seq))
		}
		r.frames = append(r.frames, frame{seq, f})
	}
	close(r.more)
	r.more = make(chan struct{})
}

// Connections returns how many connections there were, and the cursors that
// they asked for, "" where they asked for none.
func (r *Relay) Connections() (n int, cursors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connections, append([]string(nil), r.cursors...)
}

// futureCursor is the error frame of a relay that has not got that far:
// {"op":-1}{"error":"FutureCursor","message":"Cursor in the future."}.
var futureCursor = []byte("\xa1bop\x20\xa2eerrorlFutureCursorgmessageuCursor in the future.")

// start returns the index of the first frame to send.
func (r *Relay) start(cursor string) (next int, future, first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections++
	first = r.connections == 1
	r.cursors = append(r.cursors, cursor)
	if cursor == "" {
		return len(r.frames), false, first, nil
	}
	after, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return 0, false, first, err
	}
	last := int64(0)
	if n := len(r.frames); n > 0 {
		last = r.frames[n-1].seq
	}
	return sort.Search(len(r.frames), func(i int) bool { return r.frames[i].seq > after }), after > last, first, nil
}

func (r *Relay) at(i int) (f []byte, more chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < len(r.frames) {
		return r.frames[i].data, nil
	}
	return nil, r.more
}

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	next, future, first, err := r.start(req.URL.Query().Get("cursor"))
	if err != nil {
		http.Error(w, "bad cursor", http.StatusBadRequest)
		return
	}
	upgrader := websocket.Upgrader{WriteBufferSize: 64 << 10}
	conn, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		return
	}
	gone := make(chan struct{})
	go func() { // pings are answered while reading
		defer close(gone)
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	err = r.send(conn, next, future, first, gone)
	if err = errors.Join(err, conn.Close()); err != nil {
		return // the client will notice
	}
}

func (r *Relay) send(conn *websocket.Conn, next int, future, first bool, gone chan struct{}) error {
	write := func(f []byte) error {
		if err := conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		return conn.WriteMessage(websocket.BinaryMessage, f)
	}
	if r.Text != "" {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(r.Text)); err != nil {
			return err
		}
	}
	if r.First != nil && (!r.FirstOnce || first) {
		if err := write(r.First); err != nil || r.FirstOnce {
			return err
		}
	}
	if future {
		return write(futureCursor)
	}
	cut := 0
	if r.DropAfter != nil {
		cut = r.DropAfter()
	}
	for sent := 0; cut == 0 || sent < cut; {
		f, more := r.at(next)
		if f == nil {
			select {
			case <-more:
				continue
			case <-gone:
				return nil
			}
		}
		if err := write(f); err != nil {
			return err
		}
		next++
		sent++
	}
	return nil
}
