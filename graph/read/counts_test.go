package read_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// TestVersionsOfWrites runs a store: its hidden version grows exactly when the hidden set
// changes, and its write state changes with every write and never otherwise.
func TestVersionsOfWrites(t *testing.T) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings} {
		t.Run(settings.String(), func(t *testing.T) {
			store := memkv.Open(memkv.Options{Merger: graph.Merger(), Faults: memkv.Faults{Seed: 7, Conflict: 0.02, Unknown: 0.02}})
			s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings}})
			if err != nil {
				t.Fatal(err)
			}
			look := func() (version read.HiddenVersions, state string) {
				if err := store.View(t.Context(), func(r kv.Reader) (err error) {
					if version, err = read.Hidden(r); err == nil {
						state, err = read.WriteState(r)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
				return version, state
			}
			seen := map[string]bool{}
			rng := rand.New(rand.NewPCG(6, 6))
			hidden := map[string]bool{}
			for seq := format.Seq(1); seq < 60; seq++ {
				before, state := look()
				if _, again := look(); again != state {
					t.Errorf("nothing was written, and %q became %q", state, again)
				}
				did := fmt.Sprintf("did:plc:a%d", rng.IntN(10))
				hide := rng.IntN(2) == 0
				var b batch.Batch
				b.AddAccount(seq, []byte(did), !hide, false)
				b.Seen(seq, nil)
				if err := s.Apply(t.Context(), "relay", &b); err != nil {
					t.Fatal(err)
				}
				after, state := look()
				if seen[state] || (after != before) != (hide != hidden[did]) || after.Sum < before.Sum {
					t.Errorf("%s hidden=%v, before %v: version %v became %v, state %q", did, hide, hidden[did], before, after, state)
				}
				seen[state], hidden[did] = true, hide
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCursors: the cursor of a source is the lowest of its partitions. Rows without an applied
// event do not count.
func TestCursors(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings} {
		for range 100 {
			rows, want := map[string][]byte{}, map[string]format.Cursor{}
			for n := range rng.IntN(6) {
				source := fmt.Sprintf("wss://relay%d.example.com", n)
				for part := range settings.Partitions {
					c := format.CursorRow{
						Number: uint32(rng.IntN(4)), Seq: format.Seq(rng.IntN(1000)), Live: rng.IntN(5) == 0, Future: rng.IntN(3) == 0,
						Time: time.UnixMicro(rng.Int64N(1 << 50)),
					}
					for at, ok := want[source]; ok && at.Seq == c.Seq; { // equal seqs need equal times
						c.Time, c.Future = at.Time, at.Future
						break
					}
					rows[string(format.CursorKey(part, source))] = c.Value()
					if at, ok := want[source]; c.Number != 0 && !c.Live && (!ok || c.Seq < at.Seq) {
						want[source] = format.Cursor{Source: source, Seq: c.Seq, Time: c.Time, Future: c.Future}
					}
				}
			}
			wanted := slices.SortedFunc(maps.Values(want), func(x, y format.Cursor) int { return cmp.Compare(x.Source, y.Source) })
			raw(t, rows, func(r kv.Reader) {
				if got, err := read.Cursors(r); err != nil || !slices.Equal(got, wanted) {
					t.Errorf("%v, want %v: %v", got, wanted, err)
				}
			})
		}
	}
	raw(t, map[string][]byte{"crelay": {1, 2, 3}}, func(r kv.Reader) {
		if _, err := read.Cursors(r); err == nil || !strings.Contains(err.Error(), "cursor row 010203 is malformed") {
			t.Errorf("a malformed cursor: %v", err)
		}
	})
}
