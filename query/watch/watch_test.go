package watch

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/memkv"
	"skein.blue/internal/syntax"
	"skein.blue/query/algebra"
)

// A cursor from before an expression was forgotten does not resume it, even if a new watch of the
// same expression has sent as many messages.
func TestForgottenWatchIsNotResumed(t *testing.T) {
	retention := idleRetention
	idleRetention = 300 * time.Millisecond
	defer func() { idleRetention = retention }()
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := New(g, slog.New(slog.DiscardHandler))
	defer h.Close()
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
	next := func(s *Subscriber) Message {
		t.Helper()
		select {
		case m := <-s.Messages:
			return m
		case <-time.After(30 * time.Second):
			t.Fatal("no message")
			return Message{}
		}
	}
	listen := func(cursor string) (*Subscriber, Message) {
		t.Helper()
		e, err := algebra.Parse("followers(did:web:star.example.com)")
		if err != nil {
			t.Fatal(err)
		}
		s, err := h.Subscribe(e, "client", cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		<-s.Ready
		return s, next(s)
	}
	s, first := listen("")
	follow()
	if m := next(s); len(m.Entered) != 1 {
		t.Fatalf("%+v", m)
	}
	h.Leave(s)
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		h.mu.Lock()
		left := len(h.watches)
		h.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the idle expression was not forgotten within 30 seconds")
		}
	}
	follow() // while no client is subscribed
	other, _ := listen("")
	defer h.Leave(other)
	follow()
	if m := next(other); len(m.Entered) != 1 {
		t.Fatalf("%+v", m)
	}
	for _, cursor := range []string{first.Cursor, strings.Replace(first.Cursor, "-0", "-1", 1)} {
		s, m := listen(cursor)
		if m.Reset == "" {
			t.Errorf("cursor %s: %+v, want a reset", cursor, m)
		}
		h.Leave(s)
	}
}

// Equivalent expressions share a watch, idle expressions are forgotten to make room, and one client
// has at most half of the subscriptions.
func TestWatchesAreBounded(t *testing.T) {
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := New(g, slog.New(slog.DiscardHandler))
	h.running = true // keeps Subscribe from starting rounds
	for i := range 3 * maxIdle {
		for _, set := range []string{"followers(did:web:%d.example.com)", " followers( did:web:%d.example.com )"} {
			e, err := algebra.Parse(fmt.Sprintf(set, i))
			if err != nil {
				t.Fatal(err)
			}
			s, err := h.Subscribe(e, "client", "", 10)
			if err != nil {
				t.Fatal(err)
			}
			h.Leave(s)
		}
	}
	if n := len(h.watches); n > maxIdle+1 || n < maxIdle/2 {
		t.Errorf("%d expressions are watched, want about %d", n, maxIdle)
	}
	e, err := algebra.Parse("followers(did:web:x.example.com)")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		_, err := h.Subscribe(e, []string{"one", "other"}[min(i/6, 1)], "", 10)
		if refused := err != nil; refused != (i == 5) {
			t.Errorf("subscription %d: %v", i, err)
		}
	}
}
