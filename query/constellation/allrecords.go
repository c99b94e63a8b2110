package constellation

import (
	"cmp"
	"encoding/binary"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
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
func (b *backlinks) listsAll(set idset.Set) bool { return b.namesAll() && set.Len() <= maxAllRecords }

// compareBacklinks orders records by their times, newest first, those without a time last.
func compareBacklinks(x, y algebra.MemberRecord) int {
	return cmp.Or(cmp.Compare(algebra.TimeOf(y.Path), algebra.TimeOf(x.Path)), cmp.Compare(x.ID, y.ID), format.ComparePaths(x.Path, y.Path))
}

// allRecords answers a page of all records of the accounts in a set.
func (b *backlinks) allRecords(q *xrpc.Query, v *algebra.Evaluation, set idset.Set, e *algebra.Expr) (p backlinkPage, err error) {
	p.records = []recordID{}
	if set.Len() > idset.ListMax/4 {
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
		err := v.View.EachSubject(kind, dict.ID(id), ask.Window{}, func(s dict.ID, path format.Path) error {
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
	compare := compareBacklinks
	if b.oldest {
		compare = func(x, y algebra.MemberRecord) int { return compareBacklinks(y, x) }
	}
	slices.SortFunc(all, compare)
	bound := "all " + b.more() + e.Question()
	if b.cursor != "" {
		plain, err := q.Cursors.Open(b.cursor, bound)
		if err != nil || len(plain) < 9 {
			return p, xrpc.Invalid("%v", xrpc.ErrCursor)
		}
		after := algebra.MemberRecord{ID: dict.ID(binary.BigEndian.Uint64(plain)), Path: format.ParsePath(plain[8:])}
		at, found := slices.BinarySearchFunc(all, after, compare)
		if found {
			at++
		}
		all = all[at:]
	}
	if len(all) > b.limit {
		last := all[b.limit-1]
		p.cursor = new(q.Cursors.Seal(last.Path.AppendRkey(binary.BigEndian.AppendUint64(nil, uint64(last.ID))), bound))
		all = all[:b.limit]
	}
	var names map[dict.ID]string
	names, err = stringsOf(v.View, dict.DID, all, func(r algebra.MemberRecord) dict.ID { return r.ID })
	for _, r := range all {
		p.records = append(p.records, recordID{names[r.ID], e.Info(&e.Root).Collection, string(r.Path.AppendRkey(nil))})
	}
	return p, err
}
