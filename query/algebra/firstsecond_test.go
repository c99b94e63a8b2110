package algebra

import (
	"testing"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// A record of the first second of 1970 has a time, whether dates or records are read.
func TestFirstSecond(t *testing.T) {
	g := oracle.NewGraph(t, 1, 30, write.Limits{Row: 2, Chunk: 50})
	for i := 1; i < 30; i++ {
		rkey := string(dict.AppendTID(nil, 500_000<<format.ClockBits|uint64(i)))
		g.Commit(g.Accounts[i], oracle.Op{Kind: "follow", Rkey: rkey, Subject: g.Accounts[0]})
	}
	e := parsed(t, "followers("+g.Accounts[0]+")")
	must(t, g.Store.View(t.Context(), func(sn *ask.View) error {
		v, err := NewEvaluation(t.Context(), sn, e, free())
		must(t, err)
		v.dateAbove = 0
		set, _, err := v.Result()
		must(t, err)
		times, err := v.Times(set, language.Window{}, noon)
		must(t, err)
		for _, at := range times {
			if at == ask.Timeless { // histogram counts it as undated
				t.Fatal("a record with a time has none")
			}
		}
		return nil
	}))
}
