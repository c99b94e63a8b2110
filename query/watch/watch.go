package watch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/clients"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// Bounds of watching.
const (
	maxWatchedLeaves = 8
	// roundInterval is the time between rounds.
	roundInterval = 500 * time.Millisecond
	// maxCandidates is the number of members of one expression that may change in a round.
	// Above it, subscribers receive a reset.
	maxCandidates = 5000
	// retainedMessages and retainedChanges bound the messages of an expression, and the members in
	// them, that are kept for subscribers that reconnect with a cursor.
	retainedMessages = 1024
	retainedChanges  = 50_000
	maxIdle          = 500  // expressions without a subscriber
	lookupsPerRound  = 8192 // strings looked up in a round
	// messageBuffer is the number of messages that a subscriber may be behind.
	messageBuffer = 64
)

// idleRetention is how long an expression is watched after its last subscriber left.
const idleRetention = 2 * time.Minute

// A Message says what has entered and left a set.
type Message struct {
	Cursor  string   `json:"cursor"`            // resumes after this message
	Type    string   `json:"type,omitempty"`    // of the members; in the first message only
	Entered []string `json:"entered,omitempty"` // new members
	Left    []string `json:"left,omitempty"`    // former members
	Reset   string   `json:"reset,omitempty"`   // why the client must query the set again
	seq     uint64
}

// A Watcher notifies subscribers of changes. The writer names the members that may have changed
// (graph.Watcher). Each round looks up whether they were in the set in the state of the last
// round, and whether they are in the current state, which is where the next round starts. So
// every change is sent once, and none is missed.
type Watcher struct {
	store *graph.Store
	log   *slog.Logger
	meter meter           // of the current round
	ctx   context.Context //nolint:containedctx // of all rounds; ended by Close
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	running  bool
	watches  map[string]*watch              // by Expr.Question
	byEdges  map[algebra.Leaf]*watchedEdges // by leaf, if the leaf's account or record has an id
	byAuthor map[dict.ID][]*watch           // expressions with a leaf that is empty while this account is hidden
	filter   sets.Filter                    // the accounts and records in byEdges, past ones included
	changed  map[*watchedEdges]struct{}     // leaves with candidates
	hidden   candidates                     // accounts that became hidden or visible
	blocking candidates                     // accounts that began or ceased to block any list
	pool     *clients.Pool                  // of subscriptions
	spent    map[string]int                 // recent cost of rounds by client; see turns
}

// watchedEdges are the expressions with a leaf, and the leaf's members that may have changed
// since the last round. All expressions share them.
type watchedEdges struct {
	of      algebra.Leaf
	watches []*watch
	candidates
}

// candidates are members that may have changed, up to maxCandidates.
type candidates struct {
	ids      map[uint64]struct{}
	overflow bool
}

func (c *candidates) add(id dict.ID) {
	if c.overflow {
		return
	}
	if c.ids == nil {
		c.ids = map[uint64]struct{}{}
	}
	c.ids[uint64(id)] = struct{}{}
	if len(c.ids) > maxCandidates {
		c.ids, c.overflow = nil, true
	}
}

func (c *candidates) empty() bool { return len(c.ids) == 0 && !c.overflow }

// take returns the candidates and clears them.
func (c *candidates) take() *changes {
	delete(c.ids, uint64(dict.None))
	taken := &changes{ids: sets.FromUnsorted(slices.AppendSeq(make([]uint64, 0, len(c.ids)), maps.Keys(c.ids))), overflow: c.overflow}
	*c = candidates{}
	return taken
}

// changes are members of one or more sets that may have changed. Expressions share them.
type changes struct {
	ids      sets.Set
	overflow bool // there are more than maxCandidates
	lists    bool // they are lists that an account came on, or left
	hidden   bool // they are accounts that became hidden or visible
}

// watch is a watched expression.
type watch struct {
	e          *language.Expr
	key        string
	lists      bool           // e has an account's lists, as a part or in blockedBy(…)
	epoch      string         // of its cursors; differs each time the expression is watched
	ids        []dict.ID      // of e.Strings, None for strings without an id; nil until they are looked up
	was        []dict.ID      // ids as of the last round; nil if they are the same
	candidates                // in addition to those of its leaves
	whole      []algebra.Leaf // sets whose members are all candidates
	begun      bool           // a round has taken the state that its first changes start from

	next       uint64    // the number of the next message
	ring       []Message // the newest messages
	changes    int       // members in ring
	subs       map[*Subscriber]struct{}
	idle       time.Time // when the last subscriber left
	lastClient string    // the last subscriber's client, which pays for the idle expression
}

// A Subscriber receives the changes of one expression.
type Subscriber struct {
	w        *watch
	client   string
	hold     *clients.Hold
	after    string        // the cursor that it came with
	Ready    chan struct{} // closed once Messages is set
	Messages chan Message  // closed if the subscriber is too slow, another client needs its place, or the server ends
}

// New returns a watcher of a store. It starts work with the first subscriber. Clients share most subscriptions (clients.Pool).
func New(store *graph.Store, log *slog.Logger, most int) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{
		store: store, log: log, ctx: ctx, stop: stop, pool: clients.NewPool(int64(most)),
		watches: map[string]*watch{}, byEdges: map[algebra.Leaf]*watchedEdges{}, byAuthor: map[dict.ID][]*watch{},
		filter: sets.NewFilter(1 << 16), changed: map[*watchedEdges]struct{}{}, spent: map[string]int{},
	}
}

// Close ends all rounds, and with them all subscriptions.
func (h *Watcher) Close() {
	h.stop()
	h.ended.Wait()
}

// Context returns a context that Close ends.
func (h *Watcher) Context() context.Context { return h.ctx }

// errBusy is returned by Subscribe if there are too many subscribers.
var errBusy = errors.New("too many subscriptions")

// Subscribe starts a subscription of a client; "" is the server itself. after is the cursor of the last message that
// it received, or "" to receive changes from now on. If there are too many, Subscribe ends one of the client with the most, or
// returns an error.
func (h *Watcher) Subscribe(e *language.Expr, client, after string) (*Subscriber, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := e.Question()
	w := h.watches[key]
	if h.ctx.Err() != nil {
		return nil, errBusy
	}
	s := &Subscriber{client: client, after: after, Ready: make(chan struct{})}
	if client != "" { // else it is one of the server's own
		var ok bool
		if s.hold, ok = h.pool.Take(client, 1, func() { h.cut(s) }); !ok {
			return nil, errBusy
		}
	}
	if w == nil {
		w = &watch{e: e, key: key, epoch: rand.Text(), subs: map[*Subscriber]struct{}{}, lastClient: client}
		for n := range e.Root.All() {
			w.lists = w.lists || n.Op == language.OpLists
		}
		h.watches[key] = w
	}
	s.w = w
	if w.begun {
		h.begin(s)
	}
	w.subs[s], w.lastClient = struct{}{}, client
	if !h.running {
		h.running = true
		h.ended.Go(h.rounds)
	}
	return s, nil
}

// begin sends a subscriber its first message, and those that it missed. It is called with mu
// held.
func (h *Watcher) begin(s *Subscriber) {
	w := s.w
	first := Message{Cursor: w.cursor(w.next - 1), Type: w.e.Type().String()}
	var missed []Message
	if s.after != "" {
		seq, ok := w.seqOf(s.after)
		from := slices.IndexFunc(w.ring, func(m Message) bool { return m.seq > seq })
		switch {
		case !ok, seq >= w.next, from < 0 && seq < w.next-1, from >= 0 && w.ring[from].seq > seq+1:
			first.Reset = "the cursor is too old, or from before the server restarted: query the set again"
		case from >= 0:
			first.Cursor, missed = s.after, w.ring[from:]
		}
	}
	s.Messages = make(chan Message, 1+len(missed)+messageBuffer)
	s.Messages <- first
	for _, m := range missed {
		s.Messages <- m
	}
	close(s.Ready)
}

func (w *watch) cursor(seq uint64) string { return w.epoch + "-" + strconv.FormatUint(seq, 10) }

func (w *watch) seqOf(cursor string) (seq uint64, ok bool) {
	number, ok := strings.CutPrefix(cursor, w.epoch+"-")
	seq, err := strconv.ParseUint(number, 10, 63)
	return seq, ok && err == nil
}

// cut disconnects a subscriber, whose place another client needs. Its expression is kept for a reconnect with the cursor.
func (h *Watcher) cut(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.w == nil {
		return
	}
	if _, joined := s.w.subs[s]; joined {
		s.w.idle = time.Now()
		s.disconnect()
	}
}

// disconnect closes a subscriber's channels. It is called with mu held.
func (s *Subscriber) disconnect() {
	if s.Messages == nil {
		s.Messages = make(chan Message)
		close(s.Ready)
	}
	close(s.Messages)
	delete(s.w.subs, s)
}

// Leave ends a subscription.
func (h *Watcher) Leave(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(s.w.subs, s)
	if s.hold != nil {
		s.hold.Give()
	}
	if len(s.w.subs) > 0 {
		return
	}
	s.w.idle, s.w.lastClient = time.Now(), s.client
	var idle []*watch
	for _, w := range h.watches {
		if len(w.subs) == 0 {
			idle = append(idle, w)
		}
	}
	if len(idle) > maxIdle {
		h.forget(slices.MinFunc(idle, func(x, y *watch) int { return x.idle.Compare(y.idle) }))
	}
}

// Watchable returns an *language.SyntaxError if an expression cannot be watched.
func Watchable(e *language.Expr) error {
	leaves := 0
	for n := range e.Root.All() {
		why := ""
		switch {
		case !n.Window.All():
			why = "a set with since or until cannot be watched: its members would leave as time passes"
		case n.Op == language.OpLists && n.Kind != kinds.ListItem:
			why = "sets of the records that name something, such as quotes(…), cannot be watched: another record of a member changes no set"
		case n.Rank != nil && !throughLists(n):
			why = "rank(…), blend(…), blocking(…) and within(A, 2) cannot be watched: any account's records may change them"
		case n.Op == language.OpSample:
			why = "sample(…) cannot be watched: a change of the set may change which of its members are chosen"
		case n.Op == language.OpAuthors, n.Op == language.OpBy:
			why = "authors(…) and by(…) cannot be watched: one record of many may make an account a member"
		case n.Op.IsSet(), n.Op == language.OpMembers:
			leaves++
		}
		if why != "" {
			return &language.SyntaxError{Offset: n.Offset, What: why}
		}
	}
	if leaves > maxWatchedLeaves {
		return &language.SyntaxError{Offset: 0, What: fmt.Sprintf("the expression has %d leaves; at most %d can be watched", leaves, maxWatchedLeaves)}
	}
	return nil
}
