package query_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

type change struct {
	Cursor, Type, Reset, Error string
	Entered, Left              []string
}

// watchedWorld is an empty world whose accounts follow, and take back their follow of, its first account.
func watchedWorld(t *testing.T, o query.Options) (w *world, star string, follow func(did string)) {
	w = newWorld(t, 62, 0)
	w.serve(o)
	star = w.history.Accounts()[0]
	var seq int64
	return w, star, func(did string) {
		seq++
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: oracle.TID(1<<20 + uint64(seq)), Ops: []oracle.Op{{Kind: "follow", Rkey: "1", Subject: star}}})
	}
}

func (w *world) dial(set, cursor string) (*websocket.Conn, error) {
	w.t.Helper()
	conn, resp, err := websocket.DefaultDialer.DialContext(w.t.Context(), "ws"+strings.TrimPrefix(w.base, "http")+pathOf("subscribe?"+url.Values{"set": {set}, "cursor": {cursor}}.Encode()), nil)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err == nil {
		w.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// A subscriber over a websocket receives what enters and leaves, and misses nothing after a return with the cursor.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	w, star, follow := watchedWorld(t, query.Options{})
	next := func(conn *websocket.Conn) (m change) {
		t.Helper()
		kind, frame, err := conn.ReadMessage()
		if err != nil || kind != websocket.TextMessage {
			t.Fatal(kind, err)
		}
		must(t, json.Unmarshal(frame, &m))
		return m
	}
	open := func(cursor string) *websocket.Conn {
		t.Helper()
		conn, err := w.dial("followers("+star+")", cursor)
		must(t, err)
		return conn
	}
	conn := open("")
	first := next(conn)
	if first.Type != "did" || first.Cursor == "" {
		t.Errorf("the first message is %+v", first)
	}
	who := w.history.Accounts()[1]
	follow(who)
	if m := next(conn); !slices.Equal(m.Entered, []string{who}) {
		t.Errorf("%+v", m)
	}
	_ = conn.Close()
	conn = open(first.Cursor)
	if m, again := next(conn), next(conn); m.Reset != "" || !slices.Equal(again.Entered, []string{who}) {
		t.Errorf("with a cursor: %+v, %+v", m, again)
	}
}

// Server-sent events say the same, and go on from the id of the last.
func TestSubscribeEvents(t *testing.T) {
	t.Parallel()
	w, star, follow := watchedWorld(t, query.Options{})
	open := func(last string) (next func() (id string, c change), stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+pathOf("subscribe?set=followers("+star+")"), nil)
		must(t, err)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // stop does
		if err != nil || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatal(resp, err)
		}
		lines := bufio.NewScanner(resp.Body)
		return func() (id string, c change) {
			for lines.Scan() {
				name, value, _ := strings.Cut(lines.Text(), ": ")
				switch name {
				case "id":
					id = value
				case "data":
					must(t, json.Unmarshal([]byte(value), &c))
					return id, c
				}
			}
			t.Fatal("the events ended")
			return "", c
		}, func() { cancel(); _ = resp.Body.Close() }
	}
	a := w.history.Accounts()
	next, stop := open("")
	if _, c := next(); c.Type != "did" || c.Cursor == "" {
		t.Fatalf("%+v", c)
	}
	follow(a[1])
	id, c := next()
	if !slices.Equal(c.Entered, a[1:2]) || id != c.Cursor {
		t.Fatalf("%s %+v", id, c)
	}
	stop()
	follow(a[2])
	next, stop = open(id)
	if _, c := next(); c.Reset != "" {
		t.Fatalf("%+v", c)
	}
	if _, c := next(); !slices.Equal(c.Entered, a[2:3]) {
		t.Fatalf("%+v", c)
	}
	stop()
	next, stop = open("0123456789abcdef-3")
	if _, c := next(); c.Reset == "" {
		t.Fatalf("a cursor of another run: %+v", c)
	}
	stop()
}

func TestSubscribeRefusals(t *testing.T) {
	w, star, _ := watchedWorld(t, query.Options{Subscribers: 2})
	set := "follows(" + star + ")"
	w.says("subscribe?set=union("+strings.Repeat(set+",", 8)+set+")", 400, "at most 8 can be watched")
	l, err := w.dial(set, "")
	if err == nil {
		_, err = w.dial(set, "")
	}
	must(t, err)
	w.says("subscribe?set="+set, 503, "TooManySubscriptions")
	_ = l.Close()
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := w.dial(set, ""); err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the place of one who left is not given to another")
		}
	}
	w.serve(query.Options{Subscribers: -1})
	w.says("subscribe?set="+set, 501, "so it has no subscriptions")
}
