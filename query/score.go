package query

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math/bits"
	"net/url"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// The scores of rankings. If c of the n members of a set have an edge to a result, and t of all N
// accounts do, share is c / t, and lift is (c / n) / (t / N): the ratio of c to what chance would
// give. Lift, or interest, comes from association rules (Brin, Motwani, Ullman and Tsur, "Dynamic
// itemset counting and implication rules for market basket data", 1997). Both give the same
// order.
const (
	byCount = "count"
	byShare = "share"
	byLift  = "lift"
)

// leastScored is the default of min with share and lift, which mean little for small counts. If
// there are more than maxScored results, only those with the highest counts are scored.
const (
	leastScored = 5
	maxScored   = 20_000
)

// scored is a result, and the number of all accounts with an edge to it.
type scored struct {
	counted

	total uint64
}

// standing has the results of a ranking, in order.
type standing struct {
	ctx      context.Context //nolint:containedctx // of the query
	sn       *ask.View
	tally    *tally
	of       uint64 // members of the expanded set
	accounts uint64 // visible accounts of the index
	scored   []scored
}

// measure looks up the totals of the results, and orders them by score.
func (st *standing) measure(r ranking) error {
	counts, err := st.sn.Counts()
	if err != nil {
		return err
	}
	st.accounts = uint64(max(counts.Accounts-counts.Hidden, 1))
	top := st.tally.top(min(st.tally.atLeast(r.min), maxScored))
	slices.SortFunc(top, func(x, y counted) int { return cmp.Compare(x.id, y.id) })
	ids := make([]dict.ID, len(top))
	for i, c := range top {
		ids[i] = dict.ID(c.id)
	}
	st.scored = make([]scored, len(top))
	totals := st.sn.ActorCounts
	if r.via.reverse {
		totals = st.sn.SubjectCounts
	}
	err = totals(r.via.kind, ids, func(i int, total uint64) error {
		st.scored[i] = scored{top[i], total}
		return st.ctx.Err()
	})
	slices.SortFunc(st.scored, func(x, y scored) int { return inOrder(r.by, x, y) })
	return err
}

// compareShares compares x.count/x.total with y.count/y.total, exactly.
func compareShares(x, y scored) int {
	return cmp.Compare(uint64(x.count)*max(y.total, 1), uint64(y.count)*max(x.total, 1))
}

// score returns a result's share or lift, in millionths, rounded down.
func (st *standing) score(by string, e *scored) uint64 {
	n, d := uint64(e.count), max(e.total, 1)
	hi, lo := bits.Mul64(n, 1_000_000)
	if by == byLift {
		over, under := bits.Mul64(n*1_000_000, st.accounts)
		if of := max(st.of, 1); d <= (1<<63)/of { // else the quotient is nearly zero
			hi, lo, d = over, under, d*of
		}
	}
	if hi >= d {
		return 1<<63 - 1
	}
	score, _ := bits.Div64(hi, lo, d)
	return min(score, 1<<63-1)
}

// first returns the first n results.
func (st *standing) first(r ranking, n int) []scored {
	if r.by != byCount {
		return st.scored[:min(n, len(st.scored))]
	}
	top := st.tally.top(min(n, st.tally.atLeast(r.min)))
	all := make([]scored, len(top))
	for i, c := range top {
		all[i] = scored{counted: c}
	}
	return all
}

// inOrder compares two results by rank.
func inOrder(by string, x, y scored) int {
	shares := 0
	if by != byCount {
		shares = compareShares(y, x)
	}
	return cmp.Or(shares, cmp.Compare(y.count, x.count), cmp.Compare(x.id, y.id))
}

// strings calls each for the results of a page, in order, and reports whether more follow.
func (st *standing) strings(r ranking, each func(e *scored, member []byte)) (more bool, err error) {
	n := r.limit + 1
	if r.after != nil && r.by != byCount {
		n += len(st.scored)
	} else if r.after != nil {
		n += st.tally.atLeast(r.after.count)
	}
	var ids []dict.ID
	for given, done := 0, 0; ; n *= 2 {
		all := st.first(r, n)
		if r.after != nil && done == 0 {
			done, _ = slices.BinarySearchFunc(all, r.after.scored, func(e, after scored) int { return cmp.Or(inOrder(r.by, e, after), -1) })
		}
		for ; done < len(all) && given <= r.limit; done += len(ids) { // usually one round: few results are left out
			ids = ids[:0]
			for _, e := range all[done:min(done+max(r.limit+1, 64), len(all))] {
				ids = append(ids, dict.ID(e.id))
			}
			err := st.sn.Strings(r.via.is, ids, func(i int, member []byte) error {
				if given <= r.limit && r.isRecent(member) && (!r.posts || isPost(member)) {
					if given < r.limit {
						each(&all[done+i], member)
					}
					given++
				}
				return st.ctx.Err()
			})
			if err != nil {
				return false, err
			}
		}
		if given > r.limit || len(all) < n {
			return given > r.limit, nil
		}
	}
}

// rankQuestion returns the text that a cursor of a ranking is bound to: the parameters, and the
// accounts whose handles they name.
func (q params) rankQuestion(r *ranking) string {
	asked := url.Values{}
	for _, name := range rankTakes {
		if name != "cursor" && name != "limit" && q.values.Has(name) {
			asked.Set(name, q.values.Get(name))
		}
	}
	question := "rank " + asked.Encode() + "\x00" + r.of.Question()
	if r.except != nil {
		question += "\x00" + r.except.Question()
	}
	return question
}

// sealRank seals the start of the next page of a ranking.
func (c *cursors) sealRank(question string, p rankPlace) string {
	plain := binary.BigEndian.AppendUint64(nil, p.micros)
	plain = binary.BigEndian.AppendUint64(plain, p.id)
	plain = binary.BigEndian.AppendUint32(plain, p.count)
	return c.sealBytes(binary.BigEndian.AppendUint64(plain, p.total), question)
}

// openRank opens a cursor of this ranking.
func (c *cursors) openRank(question, cursor string) (p rankPlace, err error) {
	plain, err := c.openBytes(cursor, question)
	if err != nil || len(plain) != 28 {
		return p, errCursor
	}
	counted := counted{binary.BigEndian.Uint64(plain[8:]), binary.BigEndian.Uint32(plain[16:])}
	return rankPlace{scored{counted, binary.BigEndian.Uint64(plain[20:])}, binary.BigEndian.Uint64(plain)}, nil
}

// isRecent reports whether a result is a record in the window subjectsSince.
func (r *ranking) isRecent(uri []byte) bool {
	return r.subjects.All() || r.subjects.Has(format.ParsePath(uri[bytes.LastIndexByte(uri, '/')+1:]))
}
