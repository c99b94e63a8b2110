package watch

import (
	"fmt"
	"log/slog"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/internal/clients"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query/language"
)

// Equal expressions share a watch, idle expressions are forgotten to make room, and one client
// cannot keep others out.
func TestWatchesAreBounded(t *testing.T) {
	g, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := New(g, slog.New(slog.DiscardHandler), 1<<20)
	h.running = true // keeps Subscribe from starting rounds
	for i := range 3 * maxIdle {
		for _, set := range []string{"followers(did:web:%d.example.com)", "followers(did:web:%d.example.com)"} {
			e, err := language.Parse(fmt.Sprintf(set, i))
			if err != nil {
				t.Fatal(err)
			}
			s, err := h.Subscribe(e, "client", "")
			if err != nil {
				t.Fatal(err)
			}
			h.Leave(s)
		}
	}
	if n := len(h.watches); n > maxIdle+1 || n < maxIdle/2 {
		t.Errorf("%d expressions are watched, want about %d", n, maxIdle)
	}
	e, err := language.Parse("followers(did:web:x.example.com)")
	if err != nil {
		t.Fatal(err)
	}
	h.pool = clients.NewPool(5)
	for i := range 7 {
		_, err := h.Subscribe(e, []string{"one", "other"}[min(i/6, 1)], "")
		if refused := err != nil; refused != (i == 5) {
			t.Errorf("subscription %d: %v", i, err)
		}
	}
}
