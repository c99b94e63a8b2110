package demo

import (
	"testing"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
)

// What the made-up people do can be read, each commit follows the one before it, and the
// highlights are something to ask about.
func TestNetwork(t *testing.T) {
	n := New(1)
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	var d wire.Decoder
	revs := map[string]string{}
	for i := range 20_000 {
		var m wire.Message
		if err := wire.Parse(n.next(at.Add(time.Duration(i)*time.Second)), &m); err != nil {
			t.Fatal(err)
		}
		var b graph.Batch
		if d.Add(&m, &b); len(d.Drops) > 0 {
			t.Fatalf("commit %d: %+v", i, d.Drops)
		}
		if was := revs[string(m.DID)]; string(m.Since) != was || string(m.Rev) <= was || int(m.Seq) != i+1 {
			t.Fatalf("commit %d of %s: rev %s since %s, and before it %s", i, m.DID, m.Rev, m.Since, was)
		}
		revs[string(m.DID)] = string(m.Rev)
	}
	h := n.highlights()
	if h.Fan == "" || h.Post == "" || h.Stars[0] == h.Stars[1] {
		t.Errorf("%+v", h)
	}
	if again := New(1); string(again.next(at)) != string(New(1).next(at)) {
		t.Error("the same seed makes another network")
	}
}
