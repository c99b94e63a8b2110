package constellation

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
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

// allRecords answers a page of all records of the accounts in a set.
func (b *backlinks) allRecords(q *xrpc.Query, v *algebra.Evaluation, set sets.Set, e *language.Expr) (p backlinkPage, err error) {
	p.records = []recordID{}
	if set.Len() > sets.ListMax/4 {
		if err := q.Work.Heavy(); err != nil {
			return p, err
		}
	}
	subject, kind := v.IDs[0], e.Root.Kind
	var all []algebra.MemberRecord
	for id := range set.All() {
		if err := v.Ended.Err(); err != nil {
			return p, err
		}
		err := v.View.EachSubject(kind, dict.ID(id), ask.Window{}, func(s dict.ID, path ask.Path) error {
			if s == subject {
				path.Raw = slices.Clone(path.Raw)
				all = append(all, algebra.MemberRecord{ID: dict.ID(id), Path: path})
			}
			return nil
		})
		if err != nil {
			return p, err
		}
	}
	if p.total = uint64(len(all)); b.limit == 0 {
		return p, nil
	}
	bound := "all " + b.more() + e.Question()
	now := time.Now()
	var after *algebra.MemberRecord
	if b.cursor != "" {
		plain, err := q.Cursors.Open(b.cursor, bound)
		if err != nil || len(plain) < 17 {
			return p, xrpc.Invalid("%v", xrpc.ErrCursor)
		}
		if at := int64(binary.BigEndian.Uint64(plain)); at != 0 {
			now = time.UnixMicro(at)
		}
		after = &algebra.MemberRecord{ID: dict.ID(binary.BigEndian.Uint64(plain[8:])), Path: ask.ParsePath(plain[16:])}
	}
	order := algebra.NewestFirst(now)
	if b.oldest {
		order = algebra.OldestFirst(now)
	}
	compare := func(x, y algebra.MemberRecord) int {
		return cmp.Or(order.Compare(x, y), ask.ComparePaths(x.Path, y.Path))
	}
	slices.SortFunc(all, compare)
	at := int64(0) // the same page has the same cursor, unless the time matters
	if slices.ContainsFunc(all, func(r algebra.MemberRecord) bool { return order.IsAhead(r.Path) }) {
		at = now.UnixMicro()
	}
	if after != nil {
		from, found := slices.BinarySearchFunc(all, *after, compare)
		if found {
			from++
		}
		all = all[from:]
	}
	if len(all) > b.limit {
		last := all[b.limit-1]
		plain := binary.BigEndian.AppendUint64(nil, uint64(at))
		plain = binary.BigEndian.AppendUint64(plain, uint64(last.ID))
		p.cursor = new(q.Cursors.Seal(last.Path.AppendRkey(plain), bound))
		all = all[:b.limit]
	}
	var names map[dict.ID]string
	names, err = stringsOf(v.View, dict.DID, all, func(r algebra.MemberRecord) dict.ID { return r.ID })
	for _, r := range all {
		p.records = append(p.records, recordID{names[r.ID], e.Info(&e.Root).Collection, string(r.Path.AppendRkey(nil))})
	}
	return p, err
}
