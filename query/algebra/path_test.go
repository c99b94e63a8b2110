package algebra

import (
	"context"
	"errors"
	"slices"
	"testing"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

// TestPaths: a path is a chain of follows, as short as a search through all follows in maps finds, or there is none within max.
func TestPaths(t *testing.T) {
	const most = 6
	lengths := [most + 2]int{} // of the paths that were found; the last is for none
	for seed, l := range map[uint64]write.Limits{1: {Row: 6, Chunk: 3}, 2: {}, 3: {}} {
		g := oracle.NewGraph(t, seed, 60, l)
		g.Grow(150 * int(seed))
		follows := g.Between(false, 0, 0).Forward["follow"]
		for _, from := range g.Accounts {
			steps := map[string]int{from: 0}
			for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
				for _, next := range follows[queue[0]] {
					if _, known := steps[next]; !known {
						steps[next] = steps[queue[0]] + 1
						queue = append(queue, next)
					}
				}
			}
			for _, to := range g.Accounts {
				want, reached := steps[to]
				limit := 1 + g.Rand.IntN(most)
				reached = reached && want <= limit && !g.Model.Hidden[from] && !g.Model.Hidden[to]
				path := pathOf(t, g, from, to, limit)
				if !reached {
					if lengths[most+1]++; len(path) > 0 {
						t.Fatalf("seed %d: from %s to %s: %q within %d, want none", seed, from, to, path, limit)
					}
					continue
				}
				lengths[want]++
				if len(path) != want+1 || path[0] != from || path[want] != to {
					t.Fatalf("seed %d: from %s to %s: %q, want %d steps", seed, from, to, path, want)
				}
				for i := range want {
					if !slices.Contains(follows[path[i]], path[i+1]) {
						t.Fatalf("seed %d: in %q, %s does not follow %s", seed, path, path[i], path[i+1])
					}
				}
			}
		}
	}
	if slices.Min(lengths[:6]) == 0 || lengths[most+1] == 0 {
		t.Errorf("paths of these lengths were found: %v", lengths)
	}
}

func pathOf(t *testing.T, g *oracle.Graph, from, to string, most int) (path []string) {
	t.Helper()
	must(t, g.Store.View(t.Context(), func(s *ask.View) error {
		ids, err := Lookup(s, []language.Literal{{S: from, Is: dict.DID}, {S: to, Is: dict.DID}})
		if err != nil {
			return err
		}
		chain, err := NewReader(t.Context(), s, free()).Path(kinds.ByName("follow").Kind, ids[0], ids[1], most)
		if err != nil {
			return err
		}
		return s.Strings(dict.DID, chain, func(_ int, did []byte) error { path = append(path, string(did)); return nil })
	}))
	return path
}

// A search for a path ends with its caller.
func TestPathEnds(t *testing.T) {
	g := oracle.NewGraph(t, 1, 20, write.Limits{})
	g.Grow(300)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, g.Store.View(t.Context(), func(s *ask.View) error {
		_, err := NewReader(ctx, s, free()).Path(kinds.ByName("follow").Kind, 1, 2, 6)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		return nil
	}))
}
