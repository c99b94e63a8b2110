package watch

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// This file runs the rounds, which find changes and send them.

// rounds runs rounds for as long as an expression is watched.
func (h *Watcher) rounds() {
	h.store.Watch(h)
	var before *ask.View
	release := func() {}
	tick := time.NewTicker(roundInterval)
	defer tick.Stop()
	for {
		now, released, err := h.round(before)
		release()
		if err != nil {
			if released != nil {
				released()
			}
			h.store.Unwatch(h)
			h.abort(err)
			return
		}
		before, release = now, released
		select {
		case <-tick.C:
		case <-h.ctx.Done():
		}
		if h.expireIdle() {
			release()
			before, release = nil, func() {}
			h.store.Unwatch(h)
			if h.stopIfIdle() {
				return
			}
			h.store.Watch(h)
		}
	}
}

// round sends the changes between the state before and the current one, or none if before is
// nil. It returns the current state, from which the next round starts.
func (h *Watcher) round(before *ask.View) (now *ask.View, release func(), err error) {
	defer recovered(&err) // a defect here must not end indexing
	now, release, todo, err := h.freeze()
	if err == nil && before != nil {
		h.takeTurns(newState(before, now, &h.meter), newState(now, now, &h.meter), todo)
	}
	return now, release, err
}

// recovered makes a panic an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("query: panic: %v\n%s", p, debug.Stack())
	}
}

// expireIdle forgets the expressions that have had no subscriber for idleRetention, and reports
// whether no expression is left.
func (h *Watcher) expireIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		if len(w.subs) == 0 && time.Since(w.idle) > idleRetention {
			h.forget(w)
		}
	}
	return len(h.watches) == 0
}

// stopIfIdle reports whether there is still nothing to watch. If so, the rounds have ended.
func (h *Watcher) stopIfIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = len(h.watches) > 0
	return !h.running
}

// abort ends all subscriptions.
func (h *Watcher) abort(err error) {
	if h.ctx.Err() == nil {
		h.log.Error("watching sets failed; subscribers are disconnected", "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		for s := range w.subs {
			s.disconnect()
		}
		h.forget(w)
	}
	h.running = false
}

// task is the work for one expression in a round.
type task struct {
	w       *watch
	changes []*changes
	whole   []algebra.Leaf
	was, is []dict.ID // the ids of the expression's strings in the two states
}

// lookUpStrings looks up the strings of new expressions and those without an id, and adds them to the
// index of changes.
func (h *Watcher) lookUpStrings() error {
	type lookedUp struct {
		w   *watch
		ids []dict.ID
	}
	var some []lookedUp
	h.mu.Lock()
	left := lookupsPerRound
	for _, w := range h.unresolvedByTurn() {
		if left -= len(w.e.Strings); left < 0 && len(some) > 0 { // the next round does the rest
			break
		}
		some = append(some, lookedUp{w: w})
	}
	h.mu.Unlock()
	if len(some) == 0 {
		return nil
	}
	err := h.store.View(h.ctx, func(sn *ask.View) (err error) {
		for i := range some {
			if some[i].ids, err = algebra.Lookup(sn, some[i].w.e.Strings); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range some {
		w, was := l.w, l.w.ids
		if h.watches[w.key] != w || w.begun && slices.Equal(was, l.ids) {
			continue
		}
		w.was, w.ids = was, l.ids
		h.index(w)
		if !w.begun {
			continue
		}
		fresh := map[dict.ID]bool{}
		for i, id := range w.ids {
			if id != was[i] {
				fresh[id] = true
			}
		}
		for n := range w.e.Root.All() {
			for i := n.First; n.Op == language.OpMembers && i < n.End; i++ {
				w.add(w.ids[i])
			}
		}
		w.recheckAll(func(l algebra.Leaf) bool { return fresh[l.Of] || l.Op == language.OpListed && fresh[l.By] })
	}
	return nil
}

// freeze takes a state of the store, and the changes up to it. New expressions start with it.
func (h *Watcher) freeze() (sn *ask.View, release func(), todo []task, err error) {
	if err := h.lookUpStrings(); err != nil {
		return nil, nil, nil, err
	}
	h.store.Freeze(func() {
		if sn, release, err = h.store.Hold(h.ctx, h.meter.charge); err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		todo = h.gather()
		for _, w := range h.watches {
			if w.begun || w.ids == nil {
				continue
			}
			w.begun, w.next = true, 1
			for s := range w.subs {
				h.begin(s)
			}
		}
	})
	return sn, release, todo, err
}

// gather returns the work of a round, and clears the candidates. It is called with mu held.
func (h *Watcher) gather() []task {
	of := map[*watch]*task{}
	touch := func(w *watch, c *changes) {
		if of[w] == nil {
			of[w] = &task{w: w}
		}
		of[w].changes = append(of[w].changes, c)
	}
	for e := range h.changed {
		c := e.take()
		c.lists = e.of.Op == language.OpLists
		for _, w := range e.watches {
			touch(w, c)
		}
	}
	clear(h.changed)
	hidden, blocking := h.hidden.take(), h.blocking.take()
	hidden.hidden = true
	for _, w := range h.watches {
		if (w.lists || w.e.Type() == dict.DID) && (hidden.overflow || !hidden.ids.Empty()) {
			touch(w, hidden)
		}
		if w.lists && w.e.Type() == dict.DID && (blocking.overflow || !blocking.ids.Empty()) {
			touch(w, blocking)
		}
		if !w.empty() || len(w.whole) > 0 {
			touch(w, w.take())
		}
	}
	var todo []task
	for w, r := range of {
		r.was, r.is, r.whole = w.ids, w.ids, w.whole
		if w.was != nil {
			r.was = w.was
		}
		w.was, w.whole = nil, nil
		if w.begun {
			todo = append(todo, *r)
		}
	}
	return todo
}

// notify computes the changes of a set between two states, and sends them.
func (h *Watcher) notify(before, now *state, t task) {
	m, err := h.diff(before, now, t)
	switch {
	case errors.Is(err, errOverBudget):
		m = Message{Reset: overBudget}
	case errors.Is(err, errTooMany):
		m = Message{Reset: fmt.Sprintf("more than %d members may have changed at once: query the set again", maxCandidates)}
	case err != nil:
		h.log.Error("computing the changes of a watched set failed; its subscribers receive a reset", "set", t.w.e.Source, "error", err)
		m = Message{Reset: "the changes could not be computed: query the set again"}
	}
	if len(m.Entered)+len(m.Left) == 0 && m.Reset == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := t.w
	m.seq, m.Cursor = w.next, w.cursor(w.next)
	w.next++
	w.ring = append(w.ring, m)
	w.changes += len(m.Entered) + len(m.Left)
	for len(w.ring) > retainedMessages || w.changes > retainedChanges && len(w.ring) > 0 {
		w.changes -= len(w.ring[0].Entered) + len(w.ring[0].Left)
		w.ring = w.ring[1:]
	}
	for s := range w.subs {
		if len(s.Messages) == cap(s.Messages) {
			s.disconnect()
			w.idle = time.Now() // kept for a reconnect with the cursor
			continue
		}
		s.Messages <- m
	}
}

// diff returns the changes of a set. A panic is an error: a defect that one expression meets must not end other
// subscriptions.
func (h *Watcher) diff(before, now *state, t task) (m Message, err error) {
	defer recovered(&err)
	ids, err := h.candidatesOf(before, now, t)
	if err != nil {
		return m, err
	}
	first, given := t.firstSeen()
	was, err := before.members(t.w.e, t.was, sets.AndNot(ids, first))
	if err != nil {
		return m, err
	}
	alone, err := before.among(&t.w.e.Root, given, first)
	if err != nil {
		return m, err
	}
	was = sets.Or(was, alone)
	is, err := now.members(t.w.e, t.is, ids)
	if err != nil {
		return m, err
	}
	if m.Left, err = now.names(t.w.e.Type(), sets.AndNot(was, is)); err != nil {
		return m, err
	}
	m.Entered, err = now.names(t.w.e.Type(), sets.AndNot(is, was))
	return m, err
}

// firstSeen returns the arguments of members(…) that the index met after the last round. They were members without an id and
// without edges until then: whatever the older state already has of them, no round has told. given are the ids of
// the expression's strings as they were then for such a member: no set but members(…) has it.
func (t task) firstSeen() (first sets.Set, given []dict.ID) {
	given = make([]dict.ID, len(t.is))
	var ids []uint64
	for n := range t.w.e.Root.All() {
		for i := n.First; n.Op == language.OpMembers && i < n.End; i++ {
			if given[i] = t.is[i]; t.was[i] == dict.None && t.is[i] != dict.None {
				ids = append(ids, uint64(t.is[i]))
			}
		}
	}
	return sets.FromUnsorted(ids), given
}

// candidatesOf returns the members that may have changed. If they are too many, it stops reading.
func (h *Watcher) candidatesOf(before, now *state, t task) (ids sets.Set, err error) {
	accounts := t.w.e.Type() == dict.DID
	var lists sets.Set // of the accounts in lists(…): members, or what leads to members
	var hidden sets.Set
	for _, c := range t.changes {
		switch {
		case c.overflow:
			return ids, errTooMany
		case c.lists:
			lists = sets.Or(lists, c.ids)
		case c.hidden:
			hidden = c.ids
		default:
			ids = sets.Or(ids, c.ids)
		}
	}
	if accounts {
		ids = sets.Or(ids, hidden)
	}
	of := []*state{before, now}
	for i, at := range of {
		for n := range t.w.e.Root.All() {
			if n.Op != language.OpLists || hidden.Empty() {
				continue
			}
			set, err := at.listsBy([][]dict.ID{t.was, t.is}[i][n.Of], &hidden)
			if err != nil {
				return ids, err
			}
			lists = sets.Or(lists, set)
		}
		for _, l := range t.whole {
			set, err := at.whole(l)
			if err != nil {
				return ids, err
			}
			if l.Op == language.OpLists {
				lists = sets.Or(lists, set)
			} else {
				ids = sets.Or(ids, set)
			}
		}
	}
	if !accounts {
		ids, lists = sets.Or(ids, lists), sets.Set{}
	}
	for list := range lists.All() {
		for _, at := range of {
			set, err := at.whole(algebra.Leaf{Op: language.OpReverse, Kind: listBlock, Of: dict.ID(list)})
			if err != nil {
				return ids, err
			}
			ids = sets.Or(ids, set)
		}
	}
	if ids.Len() > maxCandidates {
		return ids, errTooMany
	}
	return ids, h.meter.charge(memberCost * int(ids.Len()))
}
