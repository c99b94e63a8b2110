package graph

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"skein/intern"
	"skein/internal/kv"
)

// event applies one event to the state of its account, and collects the
// changes that it makes to records. The order of the questions asked here is
// that of ../shared/docs/semantics.md, 6 to 14.
func (s *Store) event(b *Batch, e *event, as *actorState) error {
	if as.was.has(flagErasing) {
		return errErasing{as.id}
	}
	switch e.kind {
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

func (s *Store) commit(b *Batch, e *event, as *actorState) {
	a, st := &s.ap, &as.now
	source := a.result.cursor.number
	switch {
	case st.has(flagHasRev) && e.flags&hasRev != 0:
		if bytes.Compare(e.rev[:], st.rev[:]) <= 0 {
			a.replay()
			return
		}
	case st.source == source && e.seq <= st.seq: // from before a deletion, or without a rev
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
		e.flags&hasPrevData != 0 && e.prevData != st.data {
		st.flags |= flagDesync
	}
	st.flags |= flagHasRev
	st.rev, st.data = e.rev, e.data
	st.source, st.seq = source, e.seq
	for i := e.ops.start; i < e.ops.end; i++ {
		o := &b.ops[i]
		c := change{kind: o.kind, delete: o.delete, actor: as.id, rkey: o.rkey, subject: -1, order: i}
		if o.subject.end > o.subject.start {
			c.subject = int32(i)
		}
		a.changes = append(a.changes, c)
	}
}

// sync: the same root as ours means that nothing was missed.
func (s *Store) sync(e *event, as *actorState) {
	a, st := &s.ap, &as.now
	if st.source == a.result.cursor.number && e.seq <= st.seq {
		a.replay()
		return
	}
	as.changed = true
	st.source, st.seq = a.result.cursor.number, e.seq
	if st.has(flagHasRev) && e.flags&hasData != 0 && e.data == st.data {
		return
	}
	st.flags |= flagDesync
}

func (s *Store) account(e *event, as *actorState) {
	a, st := &s.ap, &as.now
	source := a.result.cursor.number
	if st.acctSrc == source && e.seq <= st.acctSeq {
		a.replay()
		return
	}
	as.changed = true
	st.acctSrc, st.acctSeq = source, e.seq
	if hide := e.flags&active == 0; hide != st.has(flagHidden) {
		st.flags ^= flagHidden
		if a.result.hidden == nil {
			a.result.hidden = map[intern.ID]bool{}
		}
		a.result.hidden[as.id] = hide
	}
	if e.flags&deleted != 0 {
		*st = repoState{
			flags: flagHidden | flagErasing, source: source, seq: e.seq, acctSrc: source, acctSeq: e.seq,
		}
		if a.result.erasing == nil {
			a.result.erasing = map[intern.ID]bool{}
		}
		a.result.erasing[as.id] = true
	}
}

// lastWords sorts the changes by path and keeps the last on each.
func (a *applier) lastWords(b *Batch) {
	slices.SortFunc(a.changes, func(x, y change) int {
		if c := cmp.Compare(x.kind, y.kind); c != 0 {
			return c
		}
		if c := cmp.Compare(x.actor, y.actor); c != 0 {
			return c
		}
		if c := bytes.Compare(b.bytes(x.rkey), b.bytes(y.rkey)); c != 0 {
			return c
		}
		return cmp.Compare(x.order, y.order)
	})
	kept := a.changes[:0]
	for i := range a.changes {
		c := &a.changes[i]
		if i+1 < len(a.changes) {
			n := &a.changes[i+1]
			if n.kind == c.kind && n.actor == c.actor && bytes.Equal(b.bytes(n.rkey), b.bytes(c.rkey)) {
				continue
			}
		}
		kept = append(kept, *c)
	}
	a.changes = kept
}

// readOld reads what each changed path held before.
func (a *applier) readOld(tx kv.Txn, b *Batch) error {
	a.keys.reset()
	for i := range a.changes {
		c := &a.changes[i]
		if c.subject >= 0 {
			c.new = a.strings.ID(int(c.subject))
		}
		a.kbuf = appendRecordKey(a.kbuf[:0], c.kind, c.actor, b.bytes(c.rkey))
		a.keys.add(a.kbuf)
	}
	return tx.MultiGet(a.keys.keys, func(i int, v []byte, ok bool) (err error) {
		c := &a.changes[i]
		c.existed = ok
		c.old, err = decodeSubject(v)
		return err
	})
}

// decide notes what each change does to the records and their edges.
func (a *applier) decide(b *Batch) {
	for i := range a.changes {
		c := &a.changes[i]
		records := a.result.counts.Records
		switch {
		case c.delete && c.existed:
			records[c.kind.String()]--
		case !c.delete && !c.existed:
			records[c.kind.String()]++
		}
		if c.old != intern.None && (c.delete || c.new != c.old) {
			a.edges.gone = append(a.edges.gone, edgeChange{c.kind, c.actor, c.old, c.rkey})
		}
		if !c.delete && c.new != intern.None && c.new != c.old {
			a.edges.come = append(a.edges.come, edgeChange{c.kind, c.actor, c.new, c.rkey})
		}
	}
	a.edges.sort(b)
}

// edgeChange is a record that names a subject from now on, or does no longer.
type edgeChange struct {
	kind    Kind
	actor   intern.ID
	subject intern.ID
	rkey    span
}

func compareEdges(x, y edgeChange) int {
	if c := cmp.Compare(x.kind, y.kind); c != 0 {
		return c
	}
	if c := cmp.Compare(x.actor, y.actor); c != 0 {
		return c
	}
	return cmp.Compare(x.subject, y.subject)
}

// setChange is a member that a reverse set gains or loses.
type setChange struct {
	kind    Kind
	remove  bool
	subject intern.ID
	member  intern.ID
}

type edgeSorter struct {
	gone, come []edgeChange // by edge, then rkey
	sets       []setChange  // by container, then member
	add, less  []uint16     // of one container
}

func (s *edgeSorter) reset() { s.gone, s.come, s.sets = s.gone[:0], s.come[:0], s.sets[:0] }

func (s *edgeSorter) sort(b *Batch) {
	byRkey := func(x, y edgeChange) int {
		if c := compareEdges(x, y); c != 0 {
			return c
		}
		return bytes.Compare(b.bytes(x.rkey), b.bytes(y.rkey))
	}
	slices.SortFunc(s.gone, byRkey)
	slices.SortFunc(s.come, byRkey)
}

// findOthers decides each edge once: an edge that lost a record stays if this
// write brings another, or if the store has one that this write does not take.
func (a *applier) findOthers(tx kv.Txn, b *Batch) error {
	e := &a.edges
	for i, n := 0, 0; i < len(e.come); i = n {
		for n = i + 1; n < len(e.come) && compareEdges(e.come[n], e.come[i]) == 0; n++ {
		}
		c := e.come[i]
		e.sets = append(e.sets, setChange{c.kind, false, c.subject, c.actor})
		a.result.added[c.kind]++
	}
	var hi []byte
	for i, n := 0, 0; i < len(e.gone); i = n {
		for n = i + 1; n < len(e.gone) && compareEdges(e.gone[n], e.gone[i]) == 0; n++ {
		}
		c := e.gone[i]
		if _, comes := slices.BinarySearchFunc(e.come, c, compareEdges); comes {
			continue
		}
		lost := e.gone[i:n]
		other := false
		a.kbuf = appendForwardKey(a.kbuf[:0], c.kind, c.actor, c.subject, nil)
		hi = kv.PrefixEnd(a.kbuf)
		err := tx.Scan(a.kbuf, hi, false, func(k, _ []byte) (bool, error) {
			rkey := k[forwardKeyPrefix:]
			if len(lost) > 0 && bytes.Equal(b.bytes(lost[0].rkey), rkey) {
				lost = lost[1:]
				return true, nil
			}
			other = true
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("graph: looking for other records of an edge: %w", err)
		}
		if !other {
			e.sets = append(e.sets, setChange{c.kind, true, c.subject, c.actor})
			a.result.removed[c.kind]++
		}
	}
	slices.SortFunc(e.sets, func(x, y setChange) int {
		if c := cmp.Compare(x.kind, y.kind); c != 0 {
			return c
		}
		if c := cmp.Compare(x.subject, y.subject); c != 0 {
			return c
		}
		return cmp.Compare(x.member, y.member)
	})
	// Records, and the same by subject.
	for i := range a.changes {
		c := &a.changes[i]
		if c.delete && !c.existed || !c.delete && c.existed && c.new == c.old {
			continue
		}
		a.kbuf = appendRecordKey(a.kbuf[:0], c.kind, c.actor, b.bytes(c.rkey))
		if c.delete {
			tx.Delete(a.kbuf)
			continue
		}
		a.vbuf = appendSubject(a.vbuf[:0], c.new)
		tx.Set(a.kbuf, a.vbuf)
	}
	for _, c := range e.gone {
		a.kbuf = appendForwardKey(a.kbuf[:0], c.kind, c.actor, c.subject, b.bytes(c.rkey))
		tx.Delete(a.kbuf)
	}
	for _, c := range e.come {
		a.kbuf = appendForwardKey(a.kbuf[:0], c.kind, c.actor, c.subject, b.bytes(c.rkey))
		tx.Set(a.kbuf, emptyValue)
	}
	return nil
}

// writeEdges merges what the sets gain and lose, one operand per container.
func (a *applier) writeEdges(tx kv.Txn) { a.edges.merge(tx, &a.kbuf, &a.vbuf) }

func (s *edgeSorter) merge(tx kv.Txn, kbuf, vbuf *[]byte) {
	for i, n := 0, 0; i < len(s.sets); i = n {
		c := s.sets[i]
		s.add, s.less = s.add[:0], s.less[:0]
		for n = i; n < len(s.sets); n++ {
			d := s.sets[n]
			if d.kind != c.kind || d.subject != c.subject || blockOf(d.member) != blockOf(c.member) {
				break
			}
			if d.remove {
				s.less = append(s.less, uint16(d.member))
			} else {
				s.add = append(s.add, uint16(d.member))
			}
		}
		*kbuf = appendReverseKey((*kbuf)[:0], c.kind, c.subject, blockOf(c.member))
		*vbuf = appendOperand((*vbuf)[:0], s.add, s.less)
		tx.Merge(*kbuf, *vbuf)
	}
}

// writeStates writes the accounts that changed, and their share of the totals.
func (a *applier) writeStates(tx kv.Txn) {
	n := &a.result.counts
	for i := range a.states {
		as := &a.states[i]
		if !as.changed {
			continue
		}
		if !as.known {
			n.Accounts++
		}
		for flag, total := range map[byte]*int64{flagHidden: &n.Hidden, flagPartial: &n.Partial, flagDesync: &n.Desynchronized} {
			switch was, now := as.was.has(flag), as.now.has(flag); {
			case !was && now:
				*total++
			case was && !now:
				*total--
			}
		}
		a.kbuf = accountKey(a.kbuf[:0], as.id)
		a.vbuf = as.now.append(a.vbuf[:0])
		tx.Set(a.kbuf, a.vbuf)
	}
	for id := range a.result.erasing {
		tx.Set(eraseKey(id), nil)
	}
}

// writeTotals writes the counts, and the hidden set with its version.
func (s *Store) writeTotals(tx kv.Txn) error {
	r := &s.ap.result
	if err := s.writeCounts(tx, r.counts); err != nil {
		return err
	}
	if len(r.hidden) == 0 {
		return nil
	}
	version, err := readHiddenVersion(tx)
	if err != nil {
		return err
	}
	r.hiddenVersion = version + 1
	tx.Set(keyHidden, binary.BigEndian.AppendUint64(nil, r.hiddenVersion))
	for id, hide := range r.hidden {
		var add, remove []uint16
		if hide {
			add = []uint16{uint16(id)}
		} else {
			remove = []uint16{uint16(id)}
		}
		tx.Merge(appendReverseKey(nil, hiddenKind, 0, blockOf(id)), appendOperand(nil, add, remove))
	}
	return nil
}
