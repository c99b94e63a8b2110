package algebra

import (
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
)

// EdgeRecords finds, for each of ids, the record that makes it a member of the leaf n. ids ascends.
func (v *Evaluation) EdgeRecords(n *Node, ids []dict.ID) (found []MemberRecord, err error) {
	add := func(i int, p ask.Path) error {
		found = append(found, MemberRecord{ids[i], p})
		return v.Ended.Err()
	}
	subject, info := v.Expr.Strings[n.Of].S, v.Expr.Info(n)
	switch n.Op {
	case OpReverse:
		err = v.View.RecordsTo(n.Kind, v.IDs[n.Of], ask.TIDOf(info.To.Is(), subject), n.Window, ids, add)
		return found, err
	case OpListed, OpLists:
		return v.listRecords(n, ids)
	default:
	}
	subjectTIDs := slices.Repeat([]uint64{ask.Timeless}, len(ids))
	if to := info.To.Is(); to == dict.URI {
		if err = v.View.Strings(to, ids, func(i int, s []byte) error { subjectTIDs[i] = ask.TIDOf(to, s); return nil }); err != nil {
			return nil, err
		}
	}
	err = v.View.RecordsFrom(n.Kind, v.IDs[n.Of], ids, func(i int) uint64 { return subjectTIDs[i] }, n.Window, add)
	return found, err
}

// IsLeaf reports whether the expression is one stored set without an operator.
func (e *Expr) IsLeaf() bool { return e.Root.Op.IsSet() }

// AuthorOf returns the DID of the account whose record makes member a member of the leaf n.
func (e *Expr) AuthorOf(n *Node, member string) string {
	switch n.Op {
	case OpForward:
		return e.Strings[n.Of].S
	case OpReverse:
		return member
	case OpListed:
		return e.Strings[n.By].S
	default: // OpLists
		return ask.AuthorityOf(member)
	}
}
