package query

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/graph/ask"
	"skein.blue/query/algebra"
	"skein.blue/query/watch"
	"skein.blue/query/xrpc"
)

// heartbeat is the time between heartbeats, by which each end notices that the other has gone.
// sendTimeout bounds how long a client may take to receive a message.
const (
	heartbeat   = 15 * time.Second
	sendTimeout = 10 * time.Second
)

// subscribe starts a subscription, which stream sends.
func subscribe(ctx context.Context, q *call) (any, error) {
	if q.server.o.Subscribers < 0 {
		return nil, xrpc.Errorf(http.StatusNotImplemented, "MethodNotImplemented", "this process does not see every change of its store, so it has no subscriptions")
	}
	e, err := q.Set()
	if err != nil {
		return nil, err
	}
	if bad := watch.Watchable(e); bad != nil {
		return nil, xrpc.Invalid("set: %v", bad)
	}
	if err := q.View(ctx, func(sn *ask.View) error { _, err := algebra.NewEvaluation(ctx, sn, e, q.Work); return err }); err != nil {
		return nil, err // it names a labeler whose labels are not read
	}
	after := cmp.Or(q.Header.Get("Last-Event-ID"), q.Values.Get("cursor")) // of an EventSource that reconnects
	sub, err := q.server.watcher.Subscribe(e, q.Work.Client, after)
	if err != nil {
		return nil, xrpc.Errorf(http.StatusServiceUnavailable, "TooManySubscriptions", "%v; try again later", err)
	}
	return sub, nil
}

// stream sends the members that enter and leave a set, over a websocket or as server-sent
// events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, sub *watch.Subscriber) {
	defer s.watcher.Leave(sub)
	switch {
	case r.Method != http.MethodGet:
	case websocket.IsWebSocketUpgrade(r):
		overWebsocket(s.watcher.Context(), w, r, sub)
	default:
		asEvents(s.watcher.Context(), w, r, sub)
	}
}

// A subscriptionError is the last message to a subscriber that is disconnected.
type subscriptionError struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// tooSlow is the reason for a disconnect.
var tooSlow = subscriptionError{"ConsumerTooSlow", "messages were not received in time, another client needs the place, or a read of the index failed; reconnect with the last cursor"}

// messages calls send for each message, and beat between them, until one of them fails, or the
// client disconnects or is too slow.
func messages(ctx context.Context, sub *watch.Subscriber, send func(v any, cursor string) error, beat func() error) {
	select {
	case <-sub.Ready:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		var err error
		select {
		case m, ok := <-sub.Messages:
			if !ok {
				_ = send(tooSlow, "")
				return
			}
			err = send(m, m.Cursor)
		case <-tick.C:
			err = beat()
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

var upgrader = websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }} // all data is public

func overWebsocket(ctx context.Context, w http.ResponseWriter, r *http.Request, sub *watch.Subscriber) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = conn.Close() }()
	ctx, left := context.WithCancel(ctx)
	defer left()
	conn.SetReadLimit(4 << 10)
	alive := func(string) error { return conn.SetReadDeadline(time.Now().Add(3 * heartbeat)) }
	conn.SetPongHandler(alive)
	_ = alive("")
	go func() { // discards messages, and notices a disconnect
		defer left()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	messages(ctx, sub, func(v any, _ string) error {
		_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
		return conn.WriteJSON(v)
	}, func() error {
		return conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(sendTimeout))
	})
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, ""), time.Now().Add(time.Second))
}

// asEvents sends server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func asEvents(serving context.Context, w http.ResponseWriter, r *http.Request, sub *watch.Subscriber) {
	control, h := WithoutDeadline(w, r), w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer it
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(serving, cancel)()
	send := func(event string) error {
		_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
		if _, err := w.Write([]byte(event)); err != nil {
			return err
		}
		return control.Flush()
	}
	messages(ctx, sub, func(v any, cursor string) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		event := "data: " + string(b) + "\n\n"
		if _, isError := v.(subscriptionError); isError {
			event = "event: error\n" + event
		}
		if cursor != "" {
			event = "id: " + cursor + "\n" + event
		}
		return send(event)
	}, func() error { return send(":\n\n") }) // a comment, which clients ignore
}

// WithoutDeadline lets a request take as long as it takes. Before it answers, the server reads a body, with or without a deadline. If it comes
// late, the request's context ends.
func WithoutDeadline(w http.ResponseWriter, r *http.Request) *http.ResponseController {
	control := http.NewResponseController(w)
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<10)); err == nil {
		_ = control.SetReadDeadline(time.Time{})
	}
	_ = control.SetWriteDeadline(time.Time{})
	return control
}

// Close ends all subscriptions.
func (s *Server) Close() { s.watcher.Close() }
