package graph

import (
	"cmp"
	"encoding/binary"
	"slices"

	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/radix"
)

// event applies one event to the state of its account, and collects the
// changes that it makes to records. The order of the questions asked here is
// that of docs/SEMANTICS.md, 6 to 14.
func (s *lane) event(b *Batch, e *event, as *actorState) error {
	if as.was.has(flagErasing) {
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
	case st.delSrc == source && e.seq <= st.delSeq: // from before the account's deletion
		a.replay()
		return
	case st.has(flagHasRev) && e.flags&hasRev != 0:
		if e.rev <= st.rev {
			// A repo that was imported may be announced by a commit of the rev that it
			// was signed under.
			if e.flags&(otherRev|hasData) == otherRev|hasData && root(e.data[:8]) != st.data && st.source == source && e.seq > st.seq {
				as.changed = true
				st.flags |= flagDesync
				return
			}
			a.replay()
			return
		}
	case st.source == source && e.seq <= st.seq: // without a rev of its own, or of ours
		a.replay()
		return
	}
	as.changed = true
	if e.flags&damaged != 0 {
		st.flags |= flagDesync
	}
	if e.flags&(hasRev|hasData) != hasRev|hasData {
		return // could not be read whole: applies nothing, the rev stays
	}
	if !st.has(flagHasRev) {
		if e.flags&hasSince != 0 {
			st.flags |= flagPartial
		}
	} else if e.flags&hasSince == 0 || e.since != st.rev ||
		e.flags&hasPrevData != 0 && root(e.prevData[:8]) != st.data {
		st.flags |= flagDesync
	}
	st.flags |= flagHasRev
	st.rev, st.data = e.rev, root(e.data[:8])
	st.source, st.seq = source, e.seq
	for i := e.ops.start; i < e.ops.end; i++ {
		o := &b.ops[i]
		p := parsePath(b.bytes(o.rkey))
		c := change{kind: o.kind, delete: o.delete, fresh: as.made || !as.was.mayHold(p), actor: as.id, path: p, subject: -1, order: i}
		if !o.delete {
			st.lower(p)
			if p.raw == nil {
				st.top = max(st.top, p.tid)
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
	known := st.has(flagHasRev) && e.flags&hasRev != 0
	switch {
	case st.source == a.source && e.seq <= st.seq:
		a.replay()
		return
	case st.source != a.source && known && e.rev <= st.rev: // of another source, or from before a sequence began anew
		a.replay()
		return
	}
	same := st.has(flagHasRev) && e.flags&hasData != 0 && root(e.data[:8]) == st.data
	if !same && known && e.rev <= st.rev && e.flags&(otherRev|hasData) == hasData {
		a.replay()
		return
	}
	as.changed = true
	st.source, st.seq = a.source, e.seq
	if !same {
		st.flags |= flagDesync
		return
	}
	if known {
		st.rev = max(st.rev, e.rev)
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
		if as.now.has(flagHidden) != st.has(flagHidden) {
			a.hide(as.id, st.has(flagHidden))
		}
		st.low = as.now.low
		as.now, as.changed = st, true
	}
	for i := e.ops.start; i < e.ops.end; i++ {
		o := &b.ops[i]
		c := change{kind: o.kind, fresh: e.flags&fresh != 0, actor: as.id, path: parsePath(b.bytes(o.rkey)), subject: -1, order: i}
		was := as.now.low
		as.now.lower(c.path)
		as.changed = as.changed || as.now.low != was
		if o.subject.end > o.subject.start {
			c.subject = int32(i)
		}
		a.changes = append(a.changes, c)
	}
}

func (s *lane) account(e *event, as *actorState) {
	a, st := &s.ap, &as.now
	source := a.source
	if st.acctSrc == source && e.seq <= st.acctSeq {
		a.replay()
		return
	}
	as.changed = true
	st.acctSrc, st.acctSeq = source, e.seq
	if hide := e.flags&active == 0; hide != st.has(flagHidden) {
		st.flags ^= flagHidden
		a.hide(as.id, hide)
	}
	if e.flags&deleted != 0 {
		*st = repoState{
			flags: flagHidden | flagErasing, source: source, seq: e.seq,
			acctSrc: source, acctSeq: e.seq, delSrc: source, delSeq: e.seq, low: st.low,
		}
		if a.result.erasing == nil {
			a.result.erasing = map[dict.ID]bool{}
		}
		a.result.erasing[as.id] = true
	}
}

// lastWords sorts the changes by path and keeps the last on each.
func (a *applier) lastWords() {
	a.spare = sortByID(&a.sorter, a.changes, a.spare, func(c *change) (Kind, dict.ID) { return c.kind, c.actor },
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
func sortByID[T any](s *radix.Sorter, list, spare []T, of func(*T) (Kind, dict.ID), compare func(x, y T) int) []T {
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
	if x.path.raw != nil || y.path.raw != nil { // the order of TIDs is that of their buckets
		if c := cmp.Compare(x.path.bucket(), y.path.bucket()); c != 0 {
			return c
		}
	}
	return comparePaths(x.path, y.path)
}

func sameActor(x, y change) bool { return x.kind == y.kind && x.actor == y.actor }

func sameChunk(x, y change) bool { return sameActor(x, y) && x.path.bucket() == y.path.bucket() }

// writeStates writes the accounts that changed, by groups, and adds up
// their share of the totals.
func (s *lane) writeStates(tx kv.Txn) {
	a := &s.ap
	n, mask := &a.result.counts, s.accountMask()
	a.sorter.Reset()
	for i := range a.states {
		as := &a.states[i]
		if !as.changed {
			continue
		}
		if !as.known {
			n.Accounts++
		}
		const counted = flagHidden | flagPartial | flagDesync
		if (as.was.flags^as.now.flags)&counted != 0 {
			n.Hidden += turned(as, flagHidden)
			n.Partial += turned(as, flagPartial)
			n.Desynchronized += turned(as, flagDesync)
		}
		a.sorter.Add(uint64(as.id), i)
	}
	group := dict.None
	a.vbuf = a.vbuf[:0]
	flush := func() {
		if len(a.vbuf) > 0 {
			a.kbuf = s.accountKey(a.kbuf[:0], group)
			s.writeAccounts(tx, a.kbuf, a.vbuf)
		}
		a.vbuf = a.vbuf[:0]
	}
	for _, it := range a.sorter.Sort() {
		as := &a.states[it.At]
		if as.id&^mask != group {
			flush()
			group = as.id &^ mask
		}
		a.vbuf = s.appendAccount(a.vbuf, as.id, &as.now)
	}
	flush()
	for id := range a.result.erasing {
		tx.Set(eraseKey(id), nil)
	}
}

// turned is 1 if the account got the flag, -1 if it lost it.
func turned(as *actorState, flag byte) int64 {
	switch was, now := as.was.has(flag), as.now.has(flag); {
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
	key := s.partKey(keyHidden, s.first)
	version, err := readVersion(tx, key)
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
		tx.Merge(s.appendMemberKey(nil, hiddenKind, 0, id), appendRow(nil, 0, 0, remove, add))
	}
	return nil
}
