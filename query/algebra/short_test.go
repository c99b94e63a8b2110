package algebra

import (
	"slices"
	"testing"

	"skein.blue/graph/write"
	"skein.blue/internal/sim/oracle"
)

// mutuals, blocking and blockedBy have the accounts that the records name, directly and through lists.
func TestBlocksThroughLists(t *testing.T) {
	g := oracle.NewGraph(t, 9, 25, write.Limits{Row: 6, Chunk: 3})
	g.Grow(4000)
	through := 0
	for range 2 {
		g.Grow(50)
		v := g.Between(false, 0, 0)
		for _, x := range g.Accounts[:12] {
			for name, of := range map[string]func(y string) bool{
				"mutuals": func(y string) bool {
					return slices.Contains(v.Forward["follow"][x], y) && slices.Contains(v.Forward["follow"][y], x)
				},
				"blocking": func(y string) bool {
					return slices.Contains(v.Forward["block"][x], y) || slices.ContainsFunc(v.Forward["listblock"][x], func(list string) bool {
						return slices.Contains(g.Listed(list, false, 0, 0), y)
					})
				},
				"blockedBy": func(y string) bool {
					return slices.Contains(v.Reverse["block"][x], y) || slices.ContainsFunc(g.ListsOf(x, false, 0, 0), func(list string) bool {
						return slices.Contains(v.Reverse["listblock"][list], y)
					})
				},
			} {
				var want []string
				for _, y := range g.Accounts {
					if !g.Model.Hidden[y] && of(y) {
						want = append(want, y)
						if name != "mutuals" && !slices.Contains(v.Forward["block"][x], y) && !slices.Contains(v.Reverse["block"][x], y) {
							through++
						}
					}
				}
				slices.Sort(want)
				e := parsed(t, name+"("+x+")")
				checkEvaluation(t, g, drawOf(g, 9), e, want)
			}
		}
	}
	if through < 5 {
		t.Errorf("only %d blocks through lists", through)
	}
}
