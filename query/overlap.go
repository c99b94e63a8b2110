package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/xrpc"
)

const (
	maxOverlap  = 20        // sets in one call, beside with
	maxTogether = 128 << 20 // bytes that these sets may take in memory
)

// overlapAnswer is an answer of overlap.
type overlapAnswer struct {
	Type   string     `json:"type"`
	Totals []uint64   `json:"totals"`
	Pairs  [][]uint64 `json:"pairs"`
	caveats

	sets []string // as they were asked for
}

// table has a row for each set, with itself, and for each pair.
func (a *overlapAnswer) table() *table {
	t := &table{columns: []column{{name: "set"}, {name: "with"}, {"members", true}}}
	for i := range a.Pairs {
		for j := i; j < len(a.Pairs); j++ {
			t.rows = append(t.rows, []any{a.sets[i], a.sets[j], a.Pairs[i][j]})
		}
	}
	return t
}

// overlap returns the sizes of sets, and of what each two of them have in common.
func overlap(ctx context.Context, q *call) (any, error) {
	n, texts, now := len(q.Values["set"]), slices.Concat(q.Values["set"], q.Values["with"]), time.Now()
	if n == 0 || n > maxOverlap {
		return nil, xrpc.Invalid("parameter set occurs %d times; it must occur 1 to %d times", n, maxOverlap)
	}
	for i, text := range texts { // each must be an expression
		what := fmt.Sprintf("set (number %d)", i+1)
		if i == n {
			what = "with"
		}
		if _, err := q.Parsed(what, text, now, q.Words.Parse); err != nil {
			return nil, err
		}
	}
	// Together they are the operands of one: equal sets are then read once, and all have members of one type.
	e, err := q.Parsed("the sets together", "union("+strings.Join(texts, ",")+")", now, q.Words.Parse)
	if err != nil {
		return nil, err
	}
	out := overlapAnswer{Type: e.Type().String(), sets: texts}
	err = q.evaluate(ctx, e, evidence.Of(&e.Root), &out.caveats, func(v *algebra.Evaluation) error {
		out.Totals, out.Pairs = nil, nil // an earlier attempt may have set them
		all, held := []sets.Set{}, 0
		for i := range e.Root.Args {
			set, err := v.Set(&e.Root.Args[i])
			if err != nil {
				return err
			}
			if sets.AndLen(v.Hidden(), set) > 0 {
				set = sets.AndNot(set, v.Hidden())
			}
			if held += set.Bytes(); held > maxTogether {
				return &algebra.LimitError{What: fmt.Sprintf("overlap holds its sets in memory, and fails if they take more than %d MiB together", maxTogether>>20)}
			}
			all, out.Totals, out.Pairs = append(all, set), append(out.Totals, set.Len()), append(out.Pairs, make([]uint64, len(e.Root.Args)))
			for j := range all {
				n := sets.AndLen(set, all[j])
				out.Pairs[i][j], out.Pairs[j][i] = n, n
			}
		}
		return nil
	})
	return &out, err
}
