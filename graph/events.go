package graph

import (
	"cmp"
	"encoding/binary"
	"slices"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/graph/read"
	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/radix"
)

// event applies one event to the state of its account, and collects the
// changes that it makes to records. The order of the questions asked here is
// that of docs/SEMANTICS.md, 6 to 14.
func (s *lane) event(b *Batch, e *event, as *actorState) error {
	if as.was.Has(format.FlagErasing) {
		return errErasing{as.id}
	}
	switch e.kind {
	case eventImport:
		s.importEvent(b, e, as)
	case eventAccount:
		s.account(e, as)
	case eventSync:
		s.sync(e, as)
	case eventCommit:
		s.commit(b, e, as)
	}
	return nil
}

func (a *applier) replay() { a.result.replays++ }

func (s *lane) commit(b *Batch, e *event, as *actorState) {
	a, st := &s.ap, &as.now
	source := a.source
	switch {
	case st.DeletionSource == source && e.seq <= st.DeletionSeq: // from before the account's deletion
		a.replay()
		return
	case st.Has(format.FlagHasRev) && e.flags&hasRev != 0:
		if e.rev <= st.Rev {
			// A repo that was imported may be announced by a commit of the rev that it
			// was signed under.
			if e.flags&(otherRev|hasData) == otherRev|hasData && format.Root(e.data[:8]) != st.Data && st.Source == source && e.seq > st.Seq {
				as.changed = true
				st.Flags |= format.FlagDesync
				return
			}
			a.replay()
			return
		}
	case st.Source == source && e.seq <= st.Seq: // without a rev of its own, or of ours
		a.replay()
		return
	}
	as.changed = true
	if e.flags&damaged != 0 {
		st.Flags |= format.FlagDesync
	}
	if e.flags&(hasRev|hasData) != hasRev|hasData {
		return // could not be read whole: applies nothing, the rev stays
	}
	if !st.Has(format.FlagHasRev) {
		if e.flags&hasSince != 0 {
			st.Flags |= format.FlagPartial
		}
	} else if e.flags&hasSince == 0 || e.since != st.Rev ||
		e.flags&hasPrevData != 0 && format.Root(e.prevData[:8]) != st.Data {
		st.Flags |= format.FlagDesync
	}
	st.Flags |= format.FlagHasRev
	st.Rev, st.Data = e.rev, format.Root(e.data[:8])
	st.Source, st.Seq = source, e.seq
	for i := e.ops.start; i < e.ops.end; i++ {
		o := &b.ops[i]
		p := format.ParsePath(b.bytes(o.rkey))
		c := change{kind: o.kind, delete: o.delete, fresh: as.made || !as.was.MayHold(p), actor: as.id, path: p, subject: -1, order: i}
		if !o.delete {
			st.NoteLow(p)
			if p.Raw == nil {
				st.Top = max(st.Top, p.TID)
			}
		}
		if o.subject.end > o.subject.start {
			c.subject = int32(i)
		}
		a.changes = append(a.changes, c)
	}
}

// sync: the same root as ours means that nothing was missed, and the chain goes on
// from the higher rev. Another root under a rev that is not above ours is from before:
// a relay that was killed sends the last ones again, under new numbers. But one whose
// message names another rev announces an import, which may bring an older repo.
func (s *lane) sync(e *event, as *actorState) {
	a, st := &s.ap, &as.now
	known := st.Has(format.FlagHasRev) && e.flags&hasRev != 0
	switch {
	case st.Source == a.source && e.seq <= st.Seq:
		a.replay()
		return
	case st.Source != a.source && known && e.rev <= st.Rev: // of another source, or from before a sequence began anew
		a.replay()
		return
	}
	same := st.Has(format.FlagHasRev) && e.flags&hasData != 0 && format.Root(e.data[:8]) == st.Data
	if !same && known && e.rev <= st.Rev && e.flags&(otherRev|hasData) == hasData {
		a.replay()
		return
	}
	as.changed = true
	st.Source, st.Seq = a.source, e.seq
	if !same {
		st.Flags |= format.FlagDesync
		return
	}
	if known {
		st.Rev = max(st.Rev, e.rev)
	}
}

// hide notes that an account is to be hidden, or shown again.
func (a *applier) hide(id dict.ID, hide bool) {
	if a.result.hidden == nil {
		a.result.hidden = map[dict.ID]bool{}
	}
	a.result.hidden[id] = hide
}

// importEvent takes over what another store knew.
func (s *lane) importEvent(b *Batch, e *event, as *actorState) {
	a := &s.ap
	if e.flags&hasState != 0 {
		st := b.states[e.seq]
		if as.now.Has(format.FlagHidden) != st.Has(format.FlagHidden) {
			a.hide(as.id, st.Has(format.FlagHidden))
		}
		st.LowBucket = as.now.LowBucket
		as.now, as.changed = st, true
	}
	for i := e.ops.start; i < e.ops.end; i++ {
		o := &b.ops[i]
		c := change{kind: o.kind, fresh: e.flags&fresh != 0, actor: as.id, path: format.ParsePath(b.bytes(o.rkey)), subject: -1, order: i}
		was := as.now.LowBucket
		as.now.NoteLow(c.path)
		as.changed = as.changed || as.now.LowBucket != was
		if o.subject.end > o.subject.start {
			c.subject = int32(i)
		}
		a.changes = append(a.changes, c)
	}
}

func (s *lane) account(e *event, as *actorState) {
	a, st := &s.ap, &as.now
	source := a.source
	if st.AccountSource == source && e.seq <= st.AccountSeq {
		a.replay()
		return
	}
	as.changed = true
	st.AccountSource, st.AccountSeq = source, e.seq
	if hide := e.flags&active == 0; hide != st.Has(format.FlagHidden) {
		st.Flags ^= format.FlagHidden
		a.hide(as.id, hide)
	}
	if e.flags&deleted != 0 {
		*st = format.RepoState{
			Flags: format.FlagHidden | format.FlagErasing, Source: source, Seq: e.seq,
			AccountSource: source, AccountSeq: e.seq, DeletionSource: source, DeletionSeq: e.seq, LowBucket: st.LowBucket,
		}
		if a.result.erasing == nil {
			a.result.erasing = map[dict.ID]bool{}
		}
		a.result.erasing[as.id] = true
	}
}

// lastWords sorts the changes by path and keeps the last on each.
func (a *applier) lastWords() {
	a.spare = sortByID(&a.sorter, a.changes, a.spare, func(c *change) (kinds.Kind, dict.ID) { return c.kind, c.actor },
		func(x, y change) int { return cmp.Or(compareChanges(&x, &y), cmp.Compare(x.order, y.order)) })
	a.changes, a.spare = a.spare, a.changes
	kept := a.changes[:0]
	for i := range a.changes {
		if i+1 < len(a.changes) && compareChanges(&a.changes[i], &a.changes[i+1]) == 0 {
			continue
		}
		kept = append(kept, a.changes[i])
	}
	a.changes = kept
}

// sortByID sorts a list into spare, by kind and id without comparing, and what
// agrees in both by compare.
func sortByID[T any](s *radix.Sorter, list, spare []T, of func(*T) (kinds.Kind, dict.ID), compare func(x, y T) int) []T {
	s.Reset()
	for i := range list {
		_, id := of(&list[i])
		s.Add(uint64(id), i)
	}
	s.Sort()
	s.Rekey(func(at uint32) uint64 { kind, _ := of(&list[at]); return uint64(kind) })
	spare = spare[:0]
	for _, it := range s.Sort() {
		spare = append(spare, list[it.At])
	}
	for rest := spare; len(rest) > 0; {
		kind, id := of(&rest[0])
		n := 1
		for ; n < len(rest); n++ {
			if k, i := of(&rest[n]); k != kind || i != id {
				break
			}
		}
		if n > 1 {
			slices.SortFunc(rest[:n], compare)
		}
		rest = rest[n:]
	}
	return spare
}

// compareChanges orders changes as their records lie in the store: by kind,
// actor, bucket, and path.
func compareChanges(x, y *change) int {
	switch {
	case x.kind != y.kind:
		return cmp.Compare(x.kind, y.kind)
	case x.actor != y.actor:
		return cmp.Compare(x.actor, y.actor)
	}
	if x.path.Raw != nil || y.path.Raw != nil { // the order of TIDs is that of their buckets
		if c := cmp.Compare(x.path.Bucket(), y.path.Bucket()); c != 0 {
			return c
		}
	}
	return format.ComparePaths(x.path, y.path)
}

func sameActor(x, y change) bool { return x.kind == y.kind && x.actor == y.actor }

func sameChunk(x, y change) bool { return sameActor(x, y) && x.path.Bucket() == y.path.Bucket() }

// writeStates writes the accounts that changed, by groups, and adds up
// their share of the totals.
func (s *lane) writeStates(tx kv.Txn) {
	a := &s.ap
	n, mask := &a.result.counts, s.AccountMask()
	a.sorter.Reset()
	for i := range a.states {
		as := &a.states[i]
		if !as.changed {
			continue
		}
		if !as.known {
			n.Accounts++
		}
		const counted = format.FlagHidden | format.FlagPartial | format.FlagDesync
		if (as.was.Flags^as.now.Flags)&counted != 0 {
			n.Hidden += turned(as, format.FlagHidden)
			n.Partial += turned(as, format.FlagPartial)
			n.Desynchronized += turned(as, format.FlagDesync)
		}
		a.sorter.Add(uint64(as.id), i)
	}
	group := dict.None
	a.vbuf = a.vbuf[:0]
	flush := func() {
		if len(a.vbuf) > 0 {
			a.kbuf = s.AccountKey(a.kbuf[:0], group)
			writeAccounts(s.Layout, tx, a.kbuf, a.vbuf)
		}
		a.vbuf = a.vbuf[:0]
	}
	for _, it := range a.sorter.Sort() {
		as := &a.states[it.At]
		if as.id&^mask != group {
			flush()
			group = as.id &^ mask
		}
		a.vbuf = s.AppendAccount(a.vbuf, as.id, &as.now)
	}
	flush()
	for id := range a.result.erasing {
		tx.Set(format.EraseKey(id), nil)
	}
}

// turned is 1 if the account got the flag, -1 if it lost it.
func turned(as *actorState, flag byte) int64 {
	switch was, now := as.was.Has(flag), as.now.Has(flag); {
	case !was && now:
		return 1
	case was && !now:
		return -1
	}
	return 0
}

// writeTotals writes the counts, and the hidden set with its version.
func (s *lane) writeTotals(tx kv.Txn) error {
	r := &s.ap.result
	if err := s.writeCounts(tx, r.counts); err != nil {
		return err
	}
	if len(r.hidden) == 0 {
		return nil
	}
	key := s.PartKey(format.KeyHidden, s.first)
	version, err := read.Version(tx, key)
	if err != nil {
		return err
	}
	r.hiddenVersion = version + 1
	tx.Set(key, binary.BigEndian.AppendUint64(nil, r.hiddenVersion))
	for id, hide := range r.hidden {
		var add, remove []uint64
		if hide {
			add = []uint64{uint64(id)}
		} else {
			remove = []uint64{uint64(id)}
		}
		tx.Merge(s.AppendMemberKey(nil, kinds.Hidden, 0, id), format.AppendRow(nil, 0, 0, remove, add))
	}
	return nil
}
