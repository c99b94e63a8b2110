package query

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
)

// The rounds in which it is found out what has changed, and told.

// rounds goes on for as long as something is watched.
func (h *watcher) rounds() {
	h.store.Watch(h)
	var before *graph.Snapshot
	release := func() {}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		now, released, err := h.round(before)
		release()
		if err != nil {
			h.store.Watch(nil)
			h.fail(err)
			return
		}
		before, release = now, released
		select {
		case <-tick.C:
		case <-h.ctx.Done():
		}
		if h.isIdle() {
			release()
			before, release = nil, func() {}
			h.store.Watch(nil)
			if h.ends() {
				return
			}
			h.store.Watch(h)
		}
	}
}

// round tells what has changed since before, nil if that is not known, and returns the state
// that the next one begins with.
func (h *watcher) round(before *graph.Snapshot) (now *graph.Snapshot, release func(), err error) {
	defer func() {
		if p := recover(); p != nil { // what we got wrong here must not end the indexing
			err = fmt.Errorf("query: panic: %v\n%s", p, debug.Stack()) //nolint:err113 // it is unexpected
			if release != nil {
				release()
			}
		}
	}()
	now, release, todo, err := h.freeze()
	if err == nil && before != nil {
		b, n := &state{sn: before, lists: map[leaf]idset.Set{}}, &state{sn: now, lists: map[leaf]idset.Set{}}
		for _, t := range todo {
			h.tell(b, n, t)
		}
	}
	return now, release, err
}

// state is a state of the store in a round, and the lists that have been read in it: many
// may watch one list.
type state struct {
	sn    *graph.Snapshot
	lists map[leaf]idset.Set
}

// isIdle forgets what nobody listens to, and reports whether nothing is left.
func (h *watcher) isIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		if len(w.subs) == 0 && time.Since(w.idle) > watchKept {
			h.forget(w)
		}
	}
	return len(h.watches) == 0
}

// ends reports whether there still is nothing to watch: then the rounds have ended.
func (h *watcher) ends() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = len(h.watches) > 0
	return !h.running
}

// fail ends all subscriptions.
func (h *watcher) fail(err error) {
	if h.ctx.Err() == nil {
		h.log.Error("watching sets failed; the subscribers are sent away", "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watches {
		for s := range w.subs {
			if s.messages == nil {
				s.messages = make(chan watchMessage)
				close(s.ready)
			}
			close(s.messages)
			delete(w.subs, s)
		}
		h.forget(w)
	}
	h.running = false
}

// round is what is to be worked out of an expression.
type round struct {
	w          *watch
	candidates map[dict.ID]struct{}
	whole      []leaf
	overflow   bool
	was, is    []dict.ID // of the expression's strings, in the two states
}

// name looks up the strings that have had no id, and those of new expressions: from then on
// changes find them.
func (h *watcher) name() error {
	type lookedUp struct {
		w   *watch
		ids []dict.ID
	}
	var some []lookedUp
	h.mu.Lock()
	for _, of := range []map[*watch]struct{}{h.pending, h.unnamed} {
		n := 0
		for w := range of {
			if n++; n > namedAtOnce { // another round does
				break
			}
			some = append(some, lookedUp{w: w})
		}
	}
	h.mu.Unlock()
	if len(some) == 0 {
		return nil
	}
	err := h.store.View(h.ctx, func(sn *graph.Snapshot) (err error) {
		for i := range some {
			if some[i].ids, err = lookup(sn, some[i].w.e.strings); err != nil {
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
			w.named = true
			continue
		}
		fresh := map[dict.ID]bool{}
		for i, id := range w.ids {
			if id != was[i] {
				fresh[id] = true
				h.candidate(w, id) // it may be given as a member
			}
		}
		h.wholeSets(w, func(l leaf) bool { return fresh[l.of] || l.op == opListed && fresh[l.by] })
	}
	return nil
}

// freeze takes a state of the store, and what has changed until then. Expressions that are
// new begin with it.
func (h *watcher) freeze() (sn *graph.Snapshot, release func(), todo []round, err error) {
	if err := h.name(); err != nil {
		return nil, nil, nil, err
	}
	h.store.Freeze(func() {
		if sn, release, err = h.store.Hold(h.ctx); err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for w := range h.touched {
			if w.begun {
				t := round{w, w.candidates, w.whole, w.overflow, w.ids, w.ids}
				if w.was != nil {
					t.was = w.was
				}
				todo = append(todo, t)
			}
			w.was = nil
			w.candidates, w.whole, w.overflow = map[dict.ID]struct{}{}, nil, false
		}
		clear(h.touched)
		for w := range h.pending {
			if !w.named {
				continue
			}
			w.begun, w.next = true, 1
			for s := range w.subs {
				h.begin(s)
			}
			delete(h.pending, w)
		}
	})
	return sn, release, todo, err
}

// tell works out what has changed of a set between two states, and tells it.
func (h *watcher) tell(before, now *state, t round) {
	m, err := h.changesOf(before, now, t)
	if err != nil {
		h.log.Error("working out what has changed of a watched set failed; its subscribers are told to ask for it anew", "set", t.w.e.source, "error", err)
		m = watchMessage{Reset: "what has changed could not be worked out: ask for the set anew"}
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
	for len(w.ring) > keptMessages || w.changes > keptChanges && len(w.ring) > 0 {
		w.changes -= len(w.ring[0].Entered) + len(w.ring[0].Left)
		w.ring = w.ring[1:]
	}
	for s := range w.subs {
		if len(s.messages) == cap(s.messages) {
			close(s.messages)
			delete(w.subs, s)
			w.idle = time.Now() // who comes back with its cursor finds it
			continue
		}
		s.messages <- m
	}
}

// changesOf is changes, with a panic as an error: what one expression meets must not end the
// others' subscriptions.
func (h *watcher) changesOf(before, now *state, t round) (m watchMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("query: panic: %v\n%s", p, debug.Stack()) //nolint:err113 // it is unexpected
		}
	}()
	return h.changes(before, now, t)
}

func (h *watcher) changes(before, now *state, t round) (m watchMessage, err error) {
	candidates := t.candidates
	for _, l := range t.whole {
		for _, at := range []*state{before, now} {
			if err := membersOf(at.sn, l, candidates); err != nil {
				return m, err
			}
		}
	}
	if t.overflow || len(candidates) > maxCandidates {
		return watchMessage{Reset: fmt.Sprintf("more than %d members may have changed at once: ask for the set anew", maxCandidates)}, nil
	}
	ids := make([]dict.ID, 0, len(candidates))
	for id := range candidates {
		if id != dict.None {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	was, err := h.memberships(before, t.w, t.was, ids)
	if err != nil {
		return m, err
	}
	is, err := h.memberships(now, t.w, t.is, ids)
	if err != nil {
		return m, err
	}
	var changed []dict.ID
	var entered []bool
	for i, id := range ids {
		if was[i] != is[i] {
			changed, entered = append(changed, id), append(entered, is[i])
		}
	}
	err = now.sn.Strings(t.w.e.Type(), changed, func(i int, s []byte) error {
		if entered[i] {
			m.Entered = append(m.Entered, string(s))
		} else {
			m.Left = append(m.Left, string(s))
		}
		return nil
	})
	return m, err
}

// memberships reports which ids are in the set, in a state. The ids of the expression's
// strings are those that the watch had: a string that has got its id since has brought
// nothing that was told.
func (h *watcher) memberships(at *state, w *watch, of, ids []dict.ID) ([]bool, error) {
	in := make([]bool, len(ids))
	v, err := newEvaluation(h.ctx, at.sn, w.e, nil)
	if err != nil {
		return nil, err
	}
	v.ids, v.listsRead = of, at.lists
	for i, id := range ids {
		if in[i], err = v.contains(literal{is: w.e.Type()}, id); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// membersOf adds the members of a set, hidden or not, to candidates.
func membersOf(sn *graph.Snapshot, l leaf, candidates map[dict.ID]struct{}) error {
	add := func(id uint64) bool {
		candidates[dict.ID(id)] = struct{}{}
		return len(candidates) <= maxCandidates
	}
	if l.op == opForward {
		ids, err := sn.AppendRecorded(nil, l.kind, l.of)
		for _, id := range ids {
			if !add(id) {
				break
			}
		}
		return err
	}
	if l.op == opListed {
		return sn.Listed(l.of, l.by, graph.Window{}, func(member dict.ID, _ format.Path) { add(uint64(member)) })
	}
	t, err := sn.Actors(l.kind, l.of)
	if err != nil {
		return err
	}
	set, err := t.All()
	if err == nil {
		set.All()(add)
	}
	return err
}
