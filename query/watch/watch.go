package watch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skein.blue/graph"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/query/algebra"
)

// Bounds of what is watched.
const (
	maxWatchedLeaves = 8
	// watchEvery is how often what has changed is told.
	watchEvery = 500 * time.Millisecond
	// maxCandidates is of how many members a change of one expression is worked out at a
	// time; past it its subscribers are told to ask for the set anew.
	maxCandidates = 5000
	// keptMessages is how many messages of an expression are kept for who comes back with a
	// cursor, and keptChanges how many members are in them.
	keptMessages = 1024
	keptChanges  = 50_000
	maxWatches   = 10_000 // expressions
	maxIdle      = 500    // of them, those that nobody listens to
	namedAtOnce  = 8192   // strings that are looked up in a round
	// buffered is how many messages a subscriber may be behind.
	buffered = 64
)

// watchKept is how long an expression is watched after its last subscriber left. It is a
// variable for the tests.
var watchKept = 2 * time.Minute

// A Message says what has entered and left a set.
type Message struct {
	Cursor  string   `json:"cursor"`
	Type    string   `json:"type,omitempty"` // of the first
	Entered []string `json:"entered,omitempty"`
	Left    []string `json:"left,omitempty"`
	Reset   string   `json:"reset,omitempty"` // why the set is to be asked for anew
	seq     uint64
}

// A Watcher tells subscribers of what changes. Which members may have changed it hears from
// the writer (graph.Watcher). Whether they have, it finds out by asking for each whether it
// was in the set before, and whether it is now, in two states of the store, of which the
// second is the first of the next round: so each change is told once, and none is missed.
type Watcher struct {
	store *graph.Store
	log   *slog.Logger
	meter meter           // of the round under way
	Ctx   context.Context //nolint:containedctx // of all rounds
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu      sync.Mutex
	running bool
	watches map[string]*watch
	edges   map[watchedSet]*watchedEdges // by the leaves that are sets of a known account or record
	actors  map[dict.ID][]*watch         // those with a forward set of an account
	people  map[*watch]struct{}          // those whose members are accounts
	pending map[*watch]struct{}          // that begin with the next round
	unnamed map[*watch]struct{}          // those with strings that have no id yet
	filter  idset.Filter                 // of edges' accounts and records; what was watched once stays in it
	changed map[*watchedEdges]struct{}   // those with candidates
	hidden  candidates                   // accounts that were hidden, or shown
	touched map[*watch]struct{}          // those with candidates of their own
	subs    int
	clients map[string]int // subscriptions of each
	spent   map[string]int // what the rounds have cost of late, by client: see turns
}

// watchedEdges are the expressions with a leaf, and the members of it that may have changed
// since the last round: they are kept once, however many the expressions are.
type watchedEdges struct {
	watches []*watch
	candidates
}

// candidates are members that may have changed. More than maxCandidates are not kept.
type candidates struct {
	ids      map[dict.ID]struct{}
	overflow bool
}

func (c *candidates) add(id dict.ID) {
	if c.overflow {
		return
	}
	if c.ids == nil {
		c.ids = map[dict.ID]struct{}{}
	}
	c.ids[id] = struct{}{}
	if len(c.ids) > maxCandidates {
		c.ids, c.overflow = nil, true
	}
}

func (c *candidates) empty() bool { return len(c.ids) == 0 && !c.overflow }

// take returns what was gathered, and begins anew.
func (c *candidates) take() *changes {
	taken := &changes{overflow: c.overflow}
	for id := range c.ids {
		if id != dict.None {
			taken.ids = append(taken.ids, uint64(id))
		}
	}
	*c = candidates{}
	return taken
}

// watch is an expression that is watched.
type watch struct {
	e          *algebra.Expr
	key        string
	epoch      string         // of its cursors: an expression that is watched anew has another
	ids        []dict.ID      // of e.strings, None for those that have none yet
	was        []dict.ID      // ids, as of the last round; nil if they are the same
	candidates                // besides those of its leaves
	whole      []algebra.Leaf // sets of which all members are candidates
	named      bool           // its strings have been looked up
	begun      bool

	next    uint64 // the number of the next message
	ring    []Message
	changes int // members in ring
	subs    map[*Subscriber]struct{}
	idle    time.Time // since when nobody listens
	left    string    // the client that listened last, which pays for it then
}

// A Subscriber is who listens.
type Subscriber struct {
	w        *watch
	client   string
	after    string        // the cursor that it came with
	Ready    chan struct{} // closed when it has begun, and there are messages
	Messages chan Message  // closed if it is too slow, or the server ends
}

// New returns a watcher of a store. It starts work with the first subscriber.
func New(store *graph.Store, log *slog.Logger) *Watcher {
	ctx, stop := context.WithCancel(context.Background())
	return &Watcher{
		store: store, log: log, Ctx: ctx, stop: stop, clients: map[string]int{},
		watches: map[string]*watch{}, edges: map[watchedSet]*watchedEdges{}, actors: map[dict.ID][]*watch{}, people: map[*watch]struct{}{},
		filter: idset.NewFilter(1 << 16), pending: map[*watch]struct{}{}, touched: map[*watch]struct{}{}, unnamed: map[*watch]struct{}{},
		changed: map[*watchedEdges]struct{}{}, spent: map[string]int{},
	}
}

// Close ends all rounds.
func (h *Watcher) Close() {
	h.stop()
	h.ended.Wait()
}

// errBusy is returned where there are too many subscribers, or expressions.
var errBusy = errors.New("there are too many subscriptions")

// Subscribe begins to listen. after is the cursor of the last message that was received, ""
// for what comes from now on. Of most subscribers in all, a client has half at most.
func (h *Watcher) Subscribe(e *algebra.Expr, client, after string, most int) (*Subscriber, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := e.Canonical()
	w := h.watches[key]
	if h.subs >= most || h.clients[client] >= max(most/2, 1) || h.Ctx.Err() != nil {
		return nil, errBusy
	}
	if w == nil {
		if len(h.watches) >= maxWatches && !h.forgetIdle() {
			return nil, errBusy
		}
		var epoch [8]byte
		_, _ = rand.Read(epoch[:]) // never fails
		w = &watch{e: e, key: key, epoch: hex.EncodeToString(epoch[:]), subs: map[*Subscriber]struct{}{}, left: client}
		h.watches[key] = w
		h.pending[w] = struct{}{}
	}
	s := &Subscriber{w: w, client: client, after: after, Ready: make(chan struct{})}
	if w.begun {
		h.begin(s)
	}
	w.subs[s], w.left = struct{}{}, client
	h.subs++
	h.clients[client]++
	if !h.running {
		h.running = true
		h.ended.Go(h.rounds)
	}
	return s, nil
}

// begin sends a subscriber the first message, and what it has missed.
func (h *Watcher) begin(s *Subscriber) {
	w := s.w
	first := Message{Cursor: w.cursor(w.next - 1), Type: w.e.Type().String()}
	var missed []Message
	if s.after != "" {
		seq, err := w.seqOf(s.after)
		from := slices.IndexFunc(w.ring, func(m Message) bool { return m.seq > seq })
		switch {
		case err != nil, seq >= w.next, from < 0 && seq < w.next-1, from >= 0 && w.ring[from].seq > seq+1:
			first.Reset = "the cursor is too old, or of another run of the server: ask for the set anew"
		case from >= 0:
			first.Cursor, missed = s.after, w.ring[from:]
		}
	}
	s.Messages = make(chan Message, 1+len(missed)+buffered)
	s.Messages <- first
	for _, m := range missed {
		s.Messages <- m
	}
	close(s.Ready)
}

func (w *watch) cursor(seq uint64) string { return w.epoch + "-" + strconv.FormatUint(seq, 10) }

func (w *watch) seqOf(cursor string) (uint64, error) {
	epoch, seq, ok := strings.Cut(cursor, "-")
	if !ok || epoch != w.epoch {
		return 0, errOtherCursor
	}
	n, err := strconv.ParseUint(seq, 10, 63)
	if err != nil {
		return 0, errOtherCursor
	}
	return n, nil
}

// Leave ends listening.
func (h *Watcher) Leave(s *Subscriber) {
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
	s.w.idle, s.w.left = time.Now(), s.client
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
func (h *Watcher) forgetIdle() bool {
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

// errOtherCursor is returned for a cursor that is not one of the expression.
var errOtherCursor = errors.New("the cursor is not one of this set")

// Watchable reports why an expression cannot be watched, nil if it can.
func Watchable(e *algebra.Expr) error {
	leaves := 0
	var walk func(n *algebra.Node) error
	walk = func(n *algebra.Node) error {
		if n.Op.IsSet() || n.Op == algebra.OpMembers {
			leaves++
		}
		if !n.Window.All() {
			return &algebra.SyntaxError{Offset: n.Offset, What: "a set in a window is not watched: its members would leave by time alone"}
		}
		if n.Op == algebra.OpLists {
			return &algebra.SyntaxError{Offset: n.Offset, What: "lists(…) is not watched: anybody's list may change it"}
		}
		for i := range n.Args {
			if err := walk(&n.Args[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(&e.Root); err != nil {
		return err
	}
	if leaves > maxWatchedLeaves {
		return &algebra.SyntaxError{Offset: 0, What: fmt.Sprintf("%d leaves; at most %d are watched", leaves, maxWatchedLeaves)}
	}
	return nil
}
