package query

import (
	"context"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// maxPath is the largest number of steps of a path.
const maxPath = 6

// path returns a shortest chain of accounts: each follows the next.
func path(ctx context.Context, q *call) (any, error) {
	ends, err := q.List("from", 1, kinds.DID)
	if err != nil {
		return nil, err
	}
	to, err := q.List("to", 1, kinds.DID)
	if err != nil {
		return nil, err
	}
	ends = append(ends, to...)
	most, same := q.Integer("max", 1, maxPath, maxPath), ends[0].S == ends[1].S
	out := struct {
		Path []string `json:"path"`
		caveats
	}{}
	err = q.View(ctx, func(sn *ask.View) error {
		out.Path = []string{} // an earlier attempt may have set it
		ids, err := algebra.Lookup(sn, ends)
		if err != nil {
			return err
		}
		chain, err := algebra.NewReader(ctx, sn, q.Work).Path(followKind.Kind, ids[0], ids[1], most)
		if err != nil {
			return err
		}
		// That both are active rests on the stream. That no shorter chain exists rests on everybody's follows; that the first follows the
		// last, on its own.
		err = q.rests(sn, &out.caveats, func(cl *claim) error {
			cl.lacks(cl.index.Statuses())
			if same {
				return nil
			}
			if len(chain) != 2 && most > 1 {
				cl.ofEverybody("", language.Window{}, followKind.Kind)
			}
			return cl.own(ends[:1], ids[:1], language.Window{}, followKind.Kind)
		})
		if err != nil {
			return err
		}
		if same && ids[0] == dict.None { // it is active
			out.Path = append(out.Path, ends[0].S)
		}
		return sn.Strings(dict.DID, chain, func(_ int, did []byte) error {
			out.Path = append(out.Path, string(did))
			return nil
		})
	})
	return out, err
}
