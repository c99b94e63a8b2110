package demo

import (
	"fmt"
	"math"
	"testing"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// light lets a query read anything.
type light struct{}

func (light) Heavy() error { return nil }

// A ranking of 2,700 accounts that reads three quarters of the edges has nearly the same first ten results as one
// that reads everything: eight of ten or more.
func TestSampledTopTen(t *testing.T) {
	n := New(1)
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := wire.Decoder{Kinds: kinds.BuiltIn}
	var b batch.Batch
	end := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for i := range pastOps {
		var m wire.Message
		if err := wire.Parse(n.next(pastAt(end, i)), &m); err != nil {
			t.Fatal(err)
		}
		if d.Add(&m, &b); i%10_000 == 9999 {
			b.Seen(format.Seq(i+1), nil)
			if err := s.Apply(t.Context(), "demo", &b); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	h := n.highlights()
	// top returns the first results of a ranking, and what was sampled.
	top := func(text string, results, units int) (all map[uint64]bool, sampled string) {
		e, err := language.NewVocabulary(kinds.BuiltIn).Parse(text, language.MaxExpr, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		err = s.View(t.Context(), func(sn *ask.View) error {
			v, err := algebra.NewEvaluation(t.Context(), sn, e, light{})
			if err != nil {
				return err
			}
			of, err := v.Set(&e.Root.Args[0])
			if err != nil {
				return err
			}
			v.HopUnits = units
			ta, err := v.Expand(&e.Root, of)
			if err != nil {
				return err
			}
			all, sampled = map[uint64]bool{}, v.Sampled()
			for _, c := range ta.Top(1, results) {
				all[c.ID] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all, sampled
	}
	total := 0
	for _, star := range h.Stars {
		text := fmt.Sprintf("rank(of=rank(of=followers(%s),via=follows),via=follows)", star)
		exact, _ := top(text, 10, math.MaxInt)
		lo, hi := 1, 1<<24 // the units that reading everything takes
		for lo < hi {
			if _, sampled := top(text, 10, (lo+hi)/2); sampled == "" {
				hi = (lo + hi) / 2
			} else {
				lo = (lo+hi)/2 + 1
			}
		}
		found, sampled := top(text, 10, lo*3/4)
		same := 0
		for id := range found {
			if exact[id] {
				same++
			}
		}
		if t.Logf("%s in three quarters of %d units: %d of the first ten; %s", text, lo, same, sampled); sampled == "" || same < 7 {
			t.Errorf("%s in %d units: %d of the first ten are right (%q)", text, lo*3/4, same, sampled)
		}
		total += same
	}
	if total < 8*len(h.Stars) {
		t.Errorf("%d of the first ten are right, for %d accounts together", total, len(h.Stars))
	}
}
