package query

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/memkv"
	"skein.blue/internal/syntax"
)

// An expression that was forgotten meanwhile is not gone on with by a cursor of before,
// however far it has come since.
func TestForgottenWatch(t *testing.T) {
	kept := watchKept
	watchKept = 300 * time.Millisecond
	defer func() { watchKept = kept }()
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	srv := httptest.NewServer(s)
	defer srv.Close()
	n := 0
	follow := func() {
		n++
		var b batch.Batch
		b.AddCommit(1, &batch.Commit{DID: fmt.Appendf(nil, "did:web:%d.example.com", n), Rev: syntax.AppendTID(nil, uint64(n)<<20), Data: make([]byte, 32)})
		b.AddPut(1, []byte("1"), []byte("did:web:star.example.com"))
		if err := g.Apply(t.Context(), "", &b); err != nil {
			t.Fatal(err)
		}
	}
	listen := func(cursor string) (*websocket.Conn, watchMessage) {
		p := url.Values{"set": {"followers(did:web:star.example.com)"}}
		if cursor != "" {
			p.Set("cursor", cursor)
		}
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/xrpc/"+subscribeNSID+"?"+p.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		var m watchMessage
		if err := conn.ReadJSON(&m); err != nil {
			t.Fatal(err)
		}
		return conn, m
	}
	conn, first := listen("")
	follow()
	var told watchMessage
	if err := conn.ReadJSON(&told); err != nil || len(told.Entered) != 1 {
		t.Fatalf("%+v, %v", told, err)
	}
	_ = conn.Close()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s.watcher.mu.Lock()
		left := len(s.watcher.watches)
		s.watcher.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the expression is never forgotten")
		}
	}
	follow() // told to nobody
	other, _ := listen("")
	defer func() { _ = other.Close() }()
	follow()
	if err := other.ReadJSON(&told); err != nil || len(told.Entered) != 1 {
		t.Fatalf("%+v, %v", told, err)
	}
	for _, cursor := range []string{first.Cursor, strings.Replace(first.Cursor, "-0", "-1", 1)} {
		conn, m := listen(cursor)
		if m.Reset == "" {
			t.Errorf("cursor %s: %+v", cursor, m)
		}
		_ = conn.Close()
	}
}

// Expressions that say the same are watched as one, and idle ones make room.
func TestWatchesAreBounded(t *testing.T) {
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := newWatcher(g, slog.New(slog.DiscardHandler))
	h.running = true // the rounds are not what is tested
	for i := range 3 * maxIdle {
		for _, set := range []string{"followers(did:web:%d.example.com)", " followers( did:web:%d.example.com )"} {
			e, err := Parse(fmt.Sprintf(set, i))
			if err != nil {
				t.Fatal(err)
			}
			s, err := h.subscribe(e, "client", "", 10)
			if err != nil {
				t.Fatal(err)
			}
			h.leave(s)
		}
	}
	if n := len(h.watches); n > maxIdle+1 || n < maxIdle/2 {
		t.Errorf("%d expressions are kept", n)
	}
	e, err := Parse("followers(did:web:x.example.com)")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		_, err := h.subscribe(e, []string{"one", "other"}[min(i/6, 1)], "", 10)
		if refused := err != nil; refused != (i == 5) {
			t.Errorf("subscription %d: %v", i, err)
		}
	}
}

// A cursor of one list is not one of another, nor does it make a large set be sorted.
func TestListCursors(t *testing.T) {
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b batch.Batch
	for i := range 5 {
		b.AddCommit(1, &batch.Commit{DID: fmt.Appendf(nil, "did:web:%d.example.com", i), Rev: syntax.AppendTID(nil, uint64(i+1)<<20), Data: make([]byte, 32)})
		b.AddPut(1, syntax.AppendTID(nil, uint64(i+1)<<30), []byte("did:web:star.example.com"))
	}
	if err := g.Apply(t.Context(), "", &b); err != nil {
		t.Fatal(err)
	}
	s, err := New(g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	const filtered = "/xrpc/blue.microcosm.links.getBacklinks?subject=did:web:star.example.com&source=app.bsky.graph.follow:subject&limit=1&did=did:web:1.example.com&did=did:web:2.example.com"
	var page struct{ Cursor string }
	if _, body := get(filtered); json.Unmarshal([]byte(body), &page) != nil || page.Cursor == "" {
		t.Fatal(body)
	}
	if status, body := get(filtered + "&cursor=" + page.Cursor); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	for _, path := range []string{
		"/xrpc/blue.skein.graph.list?set=followers(did:web:star.example.com)&limit=1&cursor=" + page.Cursor,
		strings.Replace(filtered, "&did=did:web:1.example.com", "", 1) + "&cursor=" + page.Cursor,
		filtered + "&reverse=true&cursor=" + page.Cursor,
	} {
		if status, body := get(path); status != 400 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// An error is a frame of its own type, with the names that proposal 0015 gives its fields.
func TestErrorEnvelope(t *testing.T) {
	b, err := json.Marshal(envelope(subscriptionError{"ConsumerTooSlow", "why"}))
	if want := `{"$type":"error","error":"ConsumerTooSlow","message":"why"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v; expected %s", b, err, want)
	}
}
