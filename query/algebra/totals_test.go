package algebra

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// Totals in a window are those of the records, read whole or by their dates. Above the budget they are of a sample, for as many
// results as there are units, in their order, one at least, and say so; with exact they are an error.
func TestTotalsInAWindow(t *testing.T) {
	const stars, fans = 12, 700
	g := oracle.NewGraph(t, 12, 1, write.Limits{Row: 60})
	want := make([]uint64, stars)
	hidden := oracle.Account(100)
	for s := range stars {
		for i := range fans {
			at := oracle.Begin.Add(-time.Duration(g.Rand.IntN(20)) * 24 * time.Hour).Add(time.Duration(g.Rand.IntN(1e6)) * time.Microsecond)
			if s%3 == 0 && i > 30 {
				break // a small set
			}
			g.Commit(oracle.Account(100+i), oracle.Op{Kind: "follow", Rkey: string(dict.AppendTID(nil, uint64(at.UnixMicro())<<format.ClockBits|uint64(s))), Subject: oracle.Account(10 + s)})
			if !at.Before(oracle.Begin.AddDate(0, 0, -7)) && i > 0 {
				want[s]++
			}
		}
	}
	g.Hide(hidden, true)
	w := read.WindowOf(oracle.Begin.AddDate(0, 0, -7).UnixMicro(), math.MaxInt64)
	e := parsed(t, "followers("+oracle.Account(10)+")")
	via, err := builtIn.NamedFrom("via", "follows", dict.DID)
	must(t, err)
	for _, c := range []struct {
		from, to         int // stars
		units, dateAbove int
		exact            bool
		says             string
	}{
		{0, stars, DefaultHopUnits, 0, false, ""},
		{0, stars, DefaultHopUnits, format.RowMax, false, ""},
		{0, stars, 20_000, 0, false, "of 12 results were counted in the window"},
		{0, stars, 400_000, format.RowMax, false, "from a sample of their sets"},
		{0, stars, 100_000, format.RowMax, true, "leave out exact=true"},
		{1, 2, 50_000, format.RowMax, false, "the totals of 1 of 1 results were counted in the window, 1 of them from a sample of their sets"},
		{1, 2, 50_000, format.RowMax, true, "leave out exact=true"},
		{1, stars, 20_000, format.RowMax, false, "the totals of 1 of 11 results were counted in the window, 1 of them from a sample of their sets"},
	} {
		err := on(t, g, e, free(), func(v *Evaluation) error {
			v.HopUnits, v.dateAbove, v.Exact = c.units, uint64(c.dateAbove), c.exact
			var names []language.Literal
			for s := c.from; s < c.to; s++ {
				names = append(names, language.Literal{S: oracle.Account(10 + s), Is: dict.DID})
			}
			ids, err := Lookup(v.View, names)
			must(t, err)
			got := make([]uint64, stars)
			counted, err := v.TotalsIn(via, ids, w, func(i int, total uint64) { got[i] = total })
			if err != nil {
				return err
			}
			sampled := v.Sampled()
			if (sampled == "") != (c.says == "") || !strings.Contains(sampled, c.says) || counted == 0 || counted < len(ids) && c.says == "" {
				t.Errorf("%+v: %d counted, %q", c, counted, sampled)
			}
			for i, total := range got[:counted] {
				if want := want[c.from+i]; c.says == "" && total != want || math.Abs(float64(total)-float64(want)) > 0.35*float64(want)+5 {
					t.Errorf("%+v: the total of %d is %d, want %d", c, i, total, want)
				}
			}
			return nil
		})
		if limit, is := errors.AsType[*LimitError](err); c.exact != is || is && !strings.Contains(limit.What, c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
