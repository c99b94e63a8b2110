package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// noted lists the dead letters and gaps of a store, as source, seq and reason.
func noted(t *testing.T, store kv.Store) (all []string) {
	t.Helper()
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		dead, err := read.DeadLetters(r)
		if err != nil {
			return err
		}
		gaps, err := read.Gaps(r)
		for _, d := range dead {
			all = append(all, fmt.Sprintf("%s at %d: %s", d.Source, d.Seq, d.Reason))
		}
		for _, g := range gaps {
			all = append(all, fmt.Sprintf("%s after %d: %s", g.Source, g.After, g.Reason))
		}
		return err
	}))
	slices.Sort(all)
	return all
}

// Dead letters and gaps of sources that have no cursor do not overwrite each other, nor those of sources that have one, also where
// the store was closed in between. While it is open, what is read again is noted over itself.
func TestNotesOfSourcesWithoutCursor(t *testing.T) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, sharedSettings} {
		for _, reopens := range []bool{false, true} {
			store := memkv.Open(memkv.Options{Merger: merger()})
			s := openWriter(t, store, settings, false)
			var want []string
			note := func(source string, seq format.Seq) {
				t.Helper()
				var b batch.Batch
				b.AddDeadLetter(format.DeadLetter{Seq: seq, Reason: "bad of " + source})
				b.AddGap(format.Gap{After: seq, Reason: "gap"})
				for range 2 {
					must(t, s.Apply(t.Context(), source, &b))
				}
				want = append(want, fmt.Sprintf("%s at %d: bad of %s", source, seq, source), fmt.Sprintf("%s after %d: gap", source, seq))
				slices.Sort(want)
				if reopens {
					closed(t, s)
					s = openWriter(t, store, settings, false)
				}
				if got := noted(t, store); !slices.Equal(got, want) {
					t.Fatalf("%s, reopens=%v: after %s at %d there are %q, want %q", settings, reopens, source, seq, got, want)
				}
			}
			event := []*oracle.Event{{Type: oracle.AccountEvent, Seq: 1, DID: "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", Active: true}}
			for _, source := range []string{"x", "y", "z"} {
				note(source, 1)
			}
			apply(t, s, "relay", event)
			note("relay", 1)
			note("w", 1)
			apply(t, s, "y", event) // the source gets its first cursor
			note("v", 1)
			note("y", 2)
			note("v", 2)
			verify(t, store)
			closed(t, s)
		}
	}
}
