package query

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skein/graph"
	"skein/graph/kinds"
	"skein/intern/dict"
)

// Bounds of what is watched.
const (
	maxWatchedLeaves = 8
	// watchEvery is how often what has changed is told.
	watchEvery = 500 * time.Millisecond
	// maxCandidates is of how many members a change of one expression is worked out at a
	// time; past it its subscribers are told to ask for the set anew.
	maxCandidates = 5000
	// keptMessages and watchKept are how many messages of an expression are kept for
	// who comes back with a cursor, and how long after the last subscriber left.
	keptMessages = 1024
	// maxWatches bounds the expressions, and keptChanges the members in the messages that
	// are kept of one.
	maxWatches  = 10_000
	maxIdle     = 500 // of them, those that nobody listens to
	namedAtOnce = 256 // of how many the strings are looked up in a round
	keptChanges = 50_000
	// buffered is how many messages a subscriber may be behind.
	buffered = 64
)

// watchKept is not a constant for the tests' sake.
var watchKept = 2 * time.Minute

// A watchMessage tells what has entered and left a set.
type watchMessage struct {
	Cursor  string   `json:"cursor"`
	Type    string   `json:"type,omitempty"` // of the first
	Entered []string `json:"entered,omitempty"`
	Left    []string `json:"left,omitempty"`
	Reset   string   `json:"reset,omitempty"` // why the set is to be asked for anew
	seq     uint64
}

// watcher tells subscribers of what changes. Which members may have changed it hears from
// the writer (graph.Watcher). Whether they have, it finds out by asking for each whether it
// was in the set before, and whether it is now, in two states of the store, of which the
// second is the first of the next round: so each change is told once, and none is missed.
type watcher struct {
	store *graph.Store
	log   *slog.Logger
	ctx   context.Context //nolint:containedctx // of all rounds
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	running bool
	watches map[string]*watch
	edges   map[watchedSet][]*watch // by the leaves that are sets of a known account or record
	actors  map[dict.ID][]*watch    // those with a forward set of an account
	people  map[*watch]struct{}     // those whose members are accounts
	pending map[*watch]struct{}     // that begin with the next round
	touched map[*watch]struct{}     // those with candidates
	unnamed map[*watch]struct{}     // those with strings that have no id yet
	filter  idFilter
	subs    int
	clients map[string]int // subscriptions of each
}

// watchedSet is a set that changes are looked up by.
type watchedSet struct {
	of   dict.ID
	what uint16 // kind and direction
}

func setOf(o op, k kinds.Kind, of dict.ID) watchedSet {
	return watchedSet{of, uint16(k)<<1 | uint16(o)}
}

// idFilter knows most ids that no watched set is of, at the cost of one look. It is only
// added to: what was watched once is looked up for nothing.
type idFilter [1 << 14]uint64

func (f *idFilter) place(id dict.ID) (word int, bit uint64) {
	h := hashOf(uint64(id)) >> 44
	return int(h >> 6), 1 << (h & 63)
}

func (f *idFilter) add(id dict.ID) {
	word, bit := f.place(id)
	f[word] |= bit
}

func (f *idFilter) has(id dict.ID) bool {
	word, bit := f.place(id)
	return f[word]&bit != 0
}

// watch is an expression that is watched.
type watch struct {
	e          *Expr
	key        string
	epoch      string    // of its cursors: an expression that is watched anew has another
	ids        []dict.ID // of e.strings, None for those that have none yet
	candidates map[dict.ID]struct{}
	whole      []leaf // sets of which all members are candidates
	overflow   bool
	named      bool // its strings have been looked up
	begun      bool

	next    uint64 // the number of the next message
	ring    []watchMessage
	changes int // members in ring
	subs    map[*subscriber]struct{}
	idle    time.Time // since when nobody listens
}

// subscriber is who listens.
type subscriber struct {
	w        *watch
	client   string
	after    string            // the cursor that it came with
	ready    chan struct{}     // closed when it has begun, and there are messages
	messages chan watchMessage // closed if it is too slow, or the server ends
}

func newWatcher(store *graph.Store, log *slog.Logger) *watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &watcher{
		store: store, log: log, ctx: ctx, stop: stop, clients: map[string]int{},
		watches: map[string]*watch{}, edges: map[watchedSet][]*watch{}, actors: map[dict.ID][]*watch{}, people: map[*watch]struct{}{},
		pending: map[*watch]struct{}{}, touched: map[*watch]struct{}{}, unnamed: map[*watch]struct{}{},
	}
}

// close ends all rounds.
func (h *watcher) close() {
	h.stop()
	h.ended.Wait()
}

// errBusy is returned where there are too many subscribers, or expressions.
var errBusy = errors.New("there are too many subscriptions")

// subscribe begins to listen. after is the cursor of the last message that was received, ""
// for what comes from now on. Of most subscribers in all, a client has half at most.
func (h *watcher) subscribe(e *Expr, client, after string, most int) (*subscriber, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := e.canonical()
	w := h.watches[key]
	if h.subs >= most || h.clients[client] >= max(most/2, 1) || h.ctx.Err() != nil {
		return nil, errBusy
	}
	if w == nil {
		if len(h.watches) >= maxWatches && !h.forgetIdle() {
			return nil, errBusy
		}
		var epoch [8]byte
		_, _ = rand.Read(epoch[:]) // never fails
		w = &watch{e: e, key: key, epoch: hex.EncodeToString(epoch[:]), subs: map[*subscriber]struct{}{}, candidates: map[dict.ID]struct{}{}}
		h.watches[key] = w
		h.pending[w] = struct{}{}
	}
	s := &subscriber{w: w, client: client, after: after, ready: make(chan struct{})}
	if w.begun {
		h.begin(s)
	}
	w.subs[s] = struct{}{}
	h.subs++
	h.clients[client]++
	if !h.running {
		h.running = true
		h.ended.Go(h.rounds)
	}
	return s, nil
}

// begin sends a subscriber the first message, and what it has missed.
func (h *watcher) begin(s *subscriber) {
	w := s.w
	first := watchMessage{Cursor: w.cursor(w.next - 1), Type: typeName(w.e.Type())}
	var missed []watchMessage
	if s.after != "" {
		seq, err := w.seqOf(s.after)
		from := slices.IndexFunc(w.ring, func(m watchMessage) bool { return m.seq > seq })
		switch {
		case err != nil, seq >= w.next, from < 0 && seq < w.next-1, from >= 0 && w.ring[from].seq > seq+1:
			first.Reset = "the cursor is too old, or of another run of the server: ask for the set anew"
		case from >= 0:
			first.Cursor, missed = s.after, w.ring[from:]
		}
	}
	s.messages = make(chan watchMessage, 1+len(missed)+buffered)
	s.messages <- first
	for _, m := range missed {
		s.messages <- m
	}
	close(s.ready)
}

func (w *watch) cursor(seq uint64) string { return w.epoch + "-" + strconv.FormatUint(seq, 10) }

func (w *watch) seqOf(cursor string) (uint64, error) {
	epoch, seq, ok := strings.Cut(cursor, "-")
	if !ok || epoch != w.epoch {
		return 0, errCursor
	}
	n, err := strconv.ParseUint(seq, 10, 63)
	if err != nil {
		return 0, errCursor
	}
	return n, nil
}

// leave ends listening.
func (h *watcher) leave(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(s.w.subs, s)
	h.subs--
	if h.clients[s.client]--; h.clients[s.client] == 0 {
		delete(h.clients, s.client)
	}
	if len(s.w.subs) > 0 {
		return
	}
	s.w.idle = time.Now()
	idle := 0
	for _, w := range h.watches {
		if len(w.subs) == 0 {
			idle++
		}
	}
	if idle > maxIdle {
		h.forgetIdle()
	}
}

// forgetIdle forgets the expression that nobody has listened to for the longest, and reports
// whether there was one.
func (h *watcher) forgetIdle() bool {
	var oldest *watch
	for _, w := range h.watches {
		if len(w.subs) == 0 && (oldest == nil || w.idle.Before(oldest.idle)) {
			oldest = w
		}
	}
	if oldest != nil {
		h.forget(oldest)
	}
	return oldest != nil
}

// Changed implements graph.Watcher.
func (h *watcher) Changed(edges []graph.Change, hidden []dict.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range edges {
		if h.filter.has(c.Actor) {
			for _, w := range h.edges[setOf(opForward, c.Kind, c.Actor)] {
				h.candidate(w, c.Subject)
			}
		}
		if h.filter.has(c.Subject) {
			for _, w := range h.edges[setOf(opReverse, c.Kind, c.Subject)] {
				h.candidate(w, c.Actor)
			}
		}
	}
	for _, id := range hidden {
		for w := range h.people {
			h.candidate(w, id)
		}
		for _, w := range h.actors[id] {
			h.wholeSets(w, func(l leaf) bool { return l.op == opForward && l.of == id })
		}
	}
}

func (h *watcher) candidate(w *watch, id dict.ID) {
	if w.overflow {
		return
	}
	w.candidates[id] = struct{}{}
	if len(w.candidates) > maxCandidates {
		w.overflow = true
		clear(w.candidates)
	}
	h.touched[w] = struct{}{}
}

// wholeSets has all members of some of an expression's sets looked at.
func (h *watcher) wholeSets(w *watch, which func(leaf) bool) {
	w.leaves(func(l leaf) {
		if which(l) && !slices.Contains(w.whole, l) {
			w.whole = append(w.whole, l)
			h.touched[w] = struct{}{}
		}
	})
}

// leaves calls each for the sets of an expression whose account or record is known.
func (w *watch) leaves(each func(leaf)) {
	var walk func(n *node)
	walk = func(n *node) {
		if n.op == opForward || n.op == opReverse {
			if id := w.ids[n.of]; id != dict.None {
				each(leaf{op: n.op, kind: n.kind, of: id})
			}
		}
		for i := range n.args {
			walk(&n.args[i])
		}
	}
	walk(&w.e.root)
}

// index puts an expression where changes find it, once the ids of its strings are known.
func (h *watcher) index(w *watch) {
	w.leaves(func(l leaf) {
		h.filter.add(l.of)
		if at := setOf(l.op, l.kind, l.of); !slices.Contains(h.edges[at], w) {
			h.edges[at] = append(h.edges[at], w)
		}
		if l.op == opForward && !slices.Contains(h.actors[l.of], w) {
			h.actors[l.of] = append(h.actors[l.of], w)
		}
	})
	if w.e.Type() == dict.DID {
		h.people[w] = struct{}{}
	}
	delete(h.unnamed, w)
	if slices.Contains(w.ids, dict.None) {
		h.unnamed[w] = struct{}{}
	}
}

// forget takes an expression out.
func (h *watcher) forget(w *watch) {
	without := func(list []*watch) []*watch { return slices.DeleteFunc(list, func(x *watch) bool { return x == w }) }
	if w.ids != nil {
		w.leaves(func(l leaf) {
			at := setOf(l.op, l.kind, l.of)
			if h.edges[at] = without(h.edges[at]); len(h.edges[at]) == 0 {
				delete(h.edges, at)
			}
			if h.actors[l.of] = without(h.actors[l.of]); len(h.actors[l.of]) == 0 {
				delete(h.actors, l.of)
			}
		})
	}
	delete(h.people, w)
	delete(h.pending, w)
	delete(h.touched, w)
	delete(h.unnamed, w)
	delete(h.watches, w.key)
}

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
		for _, t := range todo {
			h.tell(before, now, t)
		}
	}
	return now, release, err
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
		w.ids = l.ids
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
		h.wholeSets(w, func(l leaf) bool { return fresh[l.of] })
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
				todo = append(todo, round{w, w.candidates, w.whole, w.overflow})
			}
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
func (h *watcher) tell(before, now *graph.Snapshot, t round) {
	m, err := h.changes(before, now, t)
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

func (h *watcher) changes(before, now *graph.Snapshot, t round) (m watchMessage, err error) {
	candidates := t.candidates
	for _, l := range t.whole {
		for _, sn := range []*graph.Snapshot{before, now} {
			if err := membersOf(sn, l, candidates); err != nil {
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
	was, err := h.memberships(before, t.w, ids)
	if err != nil {
		return m, err
	}
	is, err := h.memberships(now, t.w, ids)
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
	err = now.Strings(t.w.e.Type(), changed, func(i int, s []byte) error {
		if entered[i] {
			m.Entered = append(m.Entered, string(s))
		} else {
			m.Left = append(m.Left, string(s))
		}
		return nil
	})
	return m, err
}

// memberships reports which ids are in the set, in a state.
func (h *watcher) memberships(sn *graph.Snapshot, w *watch, ids []dict.ID) ([]bool, error) {
	in := make([]bool, len(ids))
	v, err := newEvaluation(h.ctx, sn, w.e, nil)
	if err != nil {
		return nil, err
	}
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

// watchable reports why an expression cannot be watched, nil if it can.
func (e *Expr) watchable() error {
	leaves := 0
	var walk func(n *node) error
	walk = func(n *node) error {
		if n.op == opForward || n.op == opReverse || n.op == opMembers {
			leaves++
		}
		if !n.window.All() {
			return &SyntaxError{n.offset, "a set in a window is not watched: its members would leave by time alone"}
		}
		for i := range n.args {
			if err := walk(&n.args[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(&e.root); err != nil {
		return err
	}
	if leaves > maxWatchedLeaves {
		return &SyntaxError{0, fmt.Sprintf("%d leaves; at most %d are watched", leaves, maxWatchedLeaves)}
	}
	return nil
}
