package ask_test

import (
	"slices"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Keys at the ends of time are in the forward set if they are in the reverse set, so that nobody
// can hide an edge from one side. A key with the top bit set is not a TID, and not in any window.
func TestEndsOfTime(t *testing.T) {
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: graph.Merger()}), graph.Options{})
	must(t, err)
	now, _ := dict.ParseTID("3mb2kxx5ts22a")
	for i, c := range []struct {
		rkey  string
		isTID bool
	}{{"2222222222222", true}, {"3mb2kxx5ts22a", true}, {"bzzzzzzzzzzzz", true}, {"c222222222222", false}, {"jzzzzzzzzzzzz", false}, {"jzzzzzzzzzzzy", false}, {"self", false}} {
		actor, subject := "did:web:a"+string(rune('a'+i))+".com", "did:web:s"+string(rune('a'+i))+".com"
		var b batch.Batch
		b.AddCommit(format.Seq(i+1), &batch.Commit{DID: []byte(actor), Rev: []byte("3mb2kxx5ts22a"), Data: make([]byte, 32)})
		b.AddPut(1, []byte(c.rkey), []byte(subject))
		b.Seen(format.Seq(i+1), nil)
		must(t, s.Apply(t.Context(), "relay", &b))
		must(t, s.View(t.Context(), func(sn *ask.View) error {
			var ids intern.Batch
			x, y := ids.Add(dict.DID, []byte(actor)), ids.Add(dict.DID, []byte(subject))
			if err := sn.Lookup(&ids); err != nil {
				return err
			}
			forward, err := sn.Subjects(1, ids.ID(x), ask.Window{})
			if err != nil {
				return err
			}
			a, err := sn.Actors(1, ids.ID(y))
			if err != nil {
				return err
			}
			reverse, err := a.All()
			if err != nil {
				return err
			}
			if !slices.Equal(forward.List(nil), []uint64{uint64(ids.ID(y))}) || !slices.Equal(reverse.List(nil), []uint64{uint64(ids.ID(x))}) {
				t.Errorf("%s: forward %v, reverse %v", c.rkey, forward.List(nil), reverse.List(nil))
			}
			for name, w := range map[string]struct {
				window ask.Window
				in     bool
			}{
				"any time":  {read.Window{From: 0, To: format.EndOfTime}, c.isTID},
				"since now": {read.Window{From: now, To: format.EndOfTime}, c.isTID && i > 0},
				"until now": {read.Window{From: 0, To: now}, i == 0},
			} {
				set, err := sn.Subjects(1, ids.ID(x), w.window)
				if err != nil {
					return err
				}
				has, err := sn.HasEdge(1, ids.ID(x), ids.ID(y), w.window)
				if err != nil {
					return err
				}
				if got := len(set.List(nil)) == 1; got != w.in || has != w.in {
					t.Errorf("%s, %s: in the set %v, by its record %v, want %v", c.rkey, name, got, has, w.in)
				}
			}
			return nil
		}))
	}
}
