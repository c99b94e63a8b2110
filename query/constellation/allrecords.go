package constellation

import (
	"cmp"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/xrpc"
)

// A set has an account once, however many of its records name the target. Of built-in kinds that is nearly
// always one record: nobody likes a post twice. Of configured kinds it often is not: an account mentions
// another in many posts. Of those, all records are listed, which means to read the records of every account
// in the set.

// maxAllRecords is the largest number of accounts whose records are all listed. If more accounts name the
// target, one record of each is listed.
const maxAllRecords = 10_000

// namesAll reports whether all records are listed, if the set is not too large.
func (b *backlinks) namesAll() bool {
	return !b.dids && b.of.Root.Kind >= kinds.FirstConfigured
}

// listsAll reports whether all records of the accounts in a set are listed.
func (b *backlinks) listsAll(set sets.Set) bool { return b.namesAll() && set.Len() <= maxAllRecords }

// allRecords returns a page of all records of the accounts in a set, and counts them. It keeps two pages of them at most.
func (b *backlinks) allRecords(q *xrpc.Query, v *algebra.Evaluation, set sets.Set, p *backlinkPage) (all []algebra.MemberRecord, err error) {
	if set.Len() > sets.ListMax/4 {
		if err := q.Work.Heavy(); err != nil {
			return nil, err
		}
	}
	bound := "all " + b.more() + b.of.Question()
	now := time.Now()
	var after *algebra.MemberRecord
	if b.cursor != "" {
		var at [2]uint64
		rkey, err := q.Cursors.Open(bound, b.cursor, &at)
		if err != nil {
			return nil, err
		}
		if at[0] != 0 {
			now = time.UnixMicro(int64(at[0]))
		}
		after = &algebra.MemberRecord{ID: dict.ID(at[1]), Path: ask.ParsePath(rkey)}
	}
	order := algebra.OrderAt(now, b.oldest)
	compare := func(x, y algebra.MemberRecord) int {
		return cmp.Or(order.Compare(x, y), ask.ComparePaths(x.Path, y.Path))
	}
	cut := func() { // to the page, and one record to see whether there is another
		slices.SortFunc(all, compare)
		all = all[:min(len(all), b.limit+1)]
	}
	at := int64(0) // the same page has the same cursor, unless the time matters
	p.total = 0
	for id := range set.All() {
		err := v.View.EachSubject(b.of.Root.Kind, dict.ID(id), ask.Window{}, func(s dict.ID, path ask.Path) error {
			if s != v.IDs[0] {
				return v.Ended.Err()
			}
			if p.total++; order.IsAhead(path) {
				at = now.UnixMicro()
			}
			if r := (algebra.MemberRecord{ID: dict.ID(id), Path: path}); b.limit > 0 && (after == nil || compare(r, *after) > 0) {
				r.Path.Raw = slices.Clone(path.Raw)
				all = append(all, r)
			}
			if len(all) > 2*b.limit {
				cut()
			}
			return v.Ended.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	if cut(); b.limit > 0 && len(all) > b.limit {
		last := all[b.limit-1]
		p.cursor = new(q.Cursors.Seal(bound, [2]uint64{uint64(at), uint64(last.ID)}, last.Path.AppendRkey(nil)...))
		all = all[:b.limit]
	}
	return all, nil
}
