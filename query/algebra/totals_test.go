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
// results as there are units, in their order, and say so; with exact they are an error.
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
		units, dateAbove int
		exact            bool
		says             string
	}{
		{DefaultHopUnits, 0, false, ""},
		{DefaultHopUnits, format.RowMax, false, ""},
		{20_000, 0, false, "of 12 results were counted in the window"},
		{400_000, format.RowMax, false, "from a sample of their sets"},
		{100_000, format.RowMax, true, "leave out exact=true"},
	} {
		err := on(t, g, e, free(), func(v *Evaluation) error {
			v.HopUnits, v.dateAbove, v.Exact = c.units, uint64(c.dateAbove), c.exact
			var names []language.Literal
			for s := range stars {
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
			if (sampled == "") != (c.says == "") || !strings.Contains(sampled, c.says) || counted == 0 || counted < stars && c.says == "" {
				t.Errorf("%+v: %d counted, %q", c, counted, sampled)
			}
			for i, total := range got[:counted] {
				if c.says == "" && total != want[i] || math.Abs(float64(total)-float64(want[i])) > 0.35*float64(want[i])+5 {
					t.Errorf("%+v: the total of %d is %d, want %d", c, i, total, want[i])
				}
			}
			return nil
		})
		if limit, is := errors.AsType[*LimitError](err); c.exact != is || is && !strings.Contains(limit.What, c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
