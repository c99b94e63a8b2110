package query_test

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
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

// listener follows a set by the messages that it receives.
type listener struct {
	t    *testing.T
	set  string
	conn *websocket.Conn

	mu      sync.Mutex
	members map[string]bool
	cursor  string
	wrong   []string // members that entered twice, or left without having been there
	resets  int
	ended   chan struct{}
}

func (w *world) subscribeURL(set, cursor string) string {
	p := url.Values{"set": {set}}
	if cursor != "" {
		p.Set("cursor", cursor)
	}
	return w.base + "/xrpc/blue.skein.graph.subscribe?" + p.Encode()
}

// listen subscribes over a websocket, and returns once it has begun.
func (w *world) listen(set, cursor string, members map[string]bool) *listener {
	w.t.Helper()
	l := w.dial(set, cursor, members)
	l.begin()
	return l
}

// dial subscribes over a websocket; begin must follow.
func (w *world) dial(set, cursor string, members map[string]bool) *listener {
	w.t.Helper()
	conn, resp, err := websocket.DefaultDialer.DialContext(w.t.Context(), "ws"+strings.TrimPrefix(w.subscribeURL(set, cursor), "http"), nil)
	if err != nil {
		w.t.Fatal(set, err)
	}
	_ = resp.Body.Close()
	return &listener{t: w.t, set: set, conn: conn, members: members, ended: make(chan struct{})}
}

// begin waits for the first message, which comes with the next round, and reads on.
func (l *listener) begin() {
	l.t.Helper()
	first := l.read()
	if first.Type == "" {
		l.t.Fatalf("%s: the first message is %+v", l.set, first)
	}
	go func() {
		defer close(l.ended)
		for {
			var c change
			if l.conn.ReadJSON(&c) != nil || c.Error != "" {
				return
			}
			l.take(c)
		}
	}()
}

func (l *listener) read() change {
	l.t.Helper()
	var c change
	if err := l.conn.ReadJSON(&c); err != nil {
		l.t.Fatal(l.set, err)
	}
	l.take(c)
	return c
}

func (l *listener) take(c change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cursor = c.Cursor
	if c.Reset != "" {
		l.resets++
	}
	for _, m := range c.Entered {
		if l.members[m] {
			l.wrong = append(l.wrong, "again "+m)
		}
		l.members[m] = true
	}
	for _, m := range c.Left {
		if !l.members[m] {
			l.wrong = append(l.wrong, "left without having been there "+m)
		}
		delete(l.members, m)
	}
}

// becomes waits until the listener has the members wanted.
func (l *listener) becomes(want map[string]bool) {
	l.t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		l.mu.Lock()
		same, wrong, n := maps.Equal(l.members, want), l.wrong, len(l.members)
		l.mu.Unlock()
		if len(wrong) > 0 {
			l.t.Fatalf("%s: %q", l.set, wrong)
		}
		if same {
			return
		}
		if time.Now().After(until) {
			l.t.Fatalf("%s: has %d members, want %d", l.set, n, len(want))
		}
	}
}

// watchedWorld is a world whose server may be closed.
func watchedWorld(t *testing.T, seed uint64, events int, o query.Options) *world {
	t.Helper()
	w := newWorld(t, seed, events)
	s, err := query.New(w.store, o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	t.Cleanup(s.Close)
	w.base = srv.URL
	return w
}

// Who watches a set, and takes in what enters and leaves, has the set that the model has,
// each change told once: of random expressions, through a random history, with those who
// leave and come back with their cursor.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	w := watchedWorld(t, 61, 1500, query.Options{})
	rng := rand.New(rand.NewPCG(13, 13))
	members := func(set string) map[string]bool {
		have := map[string]bool{}
		got, _ := w.all(set, 1000, nil)
		for _, m := range got {
			have[m] = true
		}
		return have
	}
	var all []*listener
	for len(all) < 40 {
		set, _ := w.expression(rng, rng.IntN(2) == 0, 1+rng.IntN(2))
		if strings.Count(set, "did:") > 8 || strings.Contains(set, "lists(") {
			continue
		}
		all = append(all, w.dial(set, "", members(set)))
	}
	for _, l := range all {
		l.begin()
	}
	changed := 0
	for round := range 6 {
		for range 5 {
			w.grow(40)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		var back []*listener
		for i, l := range all {
			want := members(l.set)
			l.mu.Lock()
			if !maps.Equal(l.members, want) {
				changed++
			}
			l.mu.Unlock()
			if round%3 == i%3 && i%4 == 0 { // leaves, and comes back after more has happened
				_ = l.conn.Close()
				<-l.ended
				w.grow(30)
				all[i] = w.dial(l.set, l.cursor, l.members)
				all[i].wrong = l.wrong
				back = append(back, all[i])
			}
		}
		for _, l := range back {
			l.begin()
		}
		for _, l := range all {
			l.becomes(members(l.set))
		}
	}
	for _, l := range all {
		if l.resets > 0 {
			t.Errorf("%s: was told to ask again", l.set)
		}
	}
	if changed < 20 {
		t.Errorf("%d sets had changed", changed)
	}
}

// A set of something that is not known yet is watched from its beginning; an account that is
// hidden, and shown again, leaves and enters, and with it what its own sets bring.
func TestSubscribeFromNothing(t *testing.T) {
	t.Parallel()
	w := watchedWorld(t, 62, 0, query.Options{})
	a := w.history.Accounts()
	post := "at://" + a[9] + "/app.bsky.feed.post/3kaaaaaaaaaaa"
	likers := w.listen("likers("+post+")", "", map[string]bool{})
	mutual := w.listen("intersect(followers("+a[0]+"),follows("+a[1]+"))", "", map[string]bool{})
	given := w.listen("except(members("+a[2]+","+a[3]+"),followers("+a[0]+"))", "", map[string]bool{})
	seq := int64(0)
	commit := func(did, kind, rkey, subject string) {
		seq++
		e := &oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: tidOf(seq), Ops: []oracle.Op{{Kind: kind, Rkey: rkey, Subject: subject, Delete: subject == ""}}}
		w.happen(e)
	}
	account := func(did string, active bool) {
		seq++
		w.happen(&oracle.Event{Type: oracle.AccountEvent, Seq: seq, DID: did, Active: active})
	}
	set := func(dids ...string) map[string]bool {
		m := map[string]bool{}
		for _, d := range dids {
			m[d] = true
		}
		return m
	}
	commit(a[2], "like", "1", post)
	likers.becomes(set(a[2]))
	given.becomes(set(a[2])) // it has an id now
	commit(a[2], "follow", "1", a[0])
	given.becomes(set())
	commit(a[1], "follow", "1", a[2])
	mutual.becomes(set(a[2]))
	account(a[1], false) // its follows are empty
	mutual.becomes(set())
	account(a[1], true)
	mutual.becomes(set(a[2]))
	account(a[2], false)
	mutual.becomes(set())
	likers.becomes(set())
	account(a[2], true)
	mutual.becomes(set(a[2]))
	likers.becomes(set(a[2]))
	commit(a[2], "like", "1", "")
	likers.becomes(set())
}

func tidOf(n int64) string { return "3k" + base32(n) }

// base32 writes a number in the alphabet of TIDs.
func base32(n int64) string {
	const digits = "234567abcdefghijklmnopqrstuvwxyz"
	s := ""
	for range 11 {
		s = string(digits[n&31]) + s
		n >>= 5
	}
	return s
}

// Server-sent events say the same, and go on from the id of the last.
func TestSubscribeEvents(t *testing.T) {
	t.Parallel()
	w := watchedWorld(t, 63, 0, query.Options{})
	a := w.history.Accounts()
	open := func(last string) (next func() (id string, c change), stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.subscribeURL("followers("+a[0]+")", ""), nil)
		if err != nil {
			t.Fatal(err)
		}
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
					if err := json.Unmarshal([]byte(value), &c); err != nil {
						t.Fatal(err)
					}
					return id, c
				}
			}
			t.Fatal("the events ended")
			return "", c
		}, func() { cancel(); _ = resp.Body.Close() }
	}
	follow := func(n int64, did string) {
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: n, DID: did, Rev: tidOf(n), Ops: []oracle.Op{{Kind: "follow", Rkey: "1", Subject: a[0]}}})
	}
	next, stop := open("")
	if _, c := next(); c.Type != "did" || c.Cursor == "" {
		t.Fatalf("%+v", c)
	}
	follow(1, a[1])
	id, c := next()
	if !slices.Equal(c.Entered, a[1:2]) || id != c.Cursor {
		t.Fatalf("%s %+v", id, c)
	}
	stop()
	follow(2, a[2])
	time.Sleep(1200 * time.Millisecond) // by then the change has been sent, to no subscriber
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
	w := watchedWorld(t, 64, 100, query.Options{Subscribers: 4})
	d := w.history.Accounts()[0]
	for set, want := range map[string]string{
		"follows(" + d + ",since=1h)":                                           "a set with since or until cannot be watched",
		"union(" + strings.Repeat("follows("+d+"),", 8) + "follows(" + d + "))": "at most 8 can be watched",
		"follows(":  "follows(…) needs an argument",
		"follows(x": "neither",
	} {
		if status, body, _ := w.get(strings.TrimPrefix(w.subscribeURL(set, ""), w.base)); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", set, status, body)
		}
	}
	l := w.listen("follows("+d+")", "", map[string]bool{})
	for range 3 {
		w.listen("follows("+d+")", "", map[string]bool{})
	}
	if status, body, _ := w.get(strings.TrimPrefix(w.subscribeURL("follows("+d+")", ""), w.base)); status != 503 {
		t.Errorf("a fifth: %d %s", status, body)
	}
	_ = l.conn.Close()
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(w.subscribeURL("follows("+d+")", ""), "http"), nil)
		if resp != nil {
			_ = resp.Body.Close()
		}
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal("the place of one who left is not given to another")
		}
	}
	none := watchedWorld(t, 65, 10, query.Options{Subscribers: -1})
	if status, _, _ := none.get(strings.TrimPrefix(none.subscribeURL("follows("+d+")", ""), none.base)); status != 501 {
		t.Errorf("where nothing is indexed: %d", status)
	}
}
