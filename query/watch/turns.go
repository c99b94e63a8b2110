package watch

import (
	"cmp"
	"container/heap"
	"errors"
	"math"
	"slices"
)

// In a round, clients take turns: the next expression is one of the client that has spent the
// least, of late and in the round. So one with few changes is told before one whose
// subscriptions cost much, and what a client spends delays nobody else within a round. What
// all spend in one is bounded, and so is how late the next one begins.

// Bounds of a round, in what Store.ViewCharged counts (bytes, and 512 for a key that is looked
// up) and the costs below. 64 MiB is some hundred thousand look-ups, or a list of a million
// accounts in both states: some tenths of a second.
const (
	clientBudget = 64 << 20
	roundBudget  = 2 * clientBudget

	memberCost = 16 // a member of which it is known whether it is in a set
	recordCost = 32 // a record that is looked at
)

// tooDear is why a subscriber is told to ask for the set anew whose client has spent its share.
const tooDear = "working out what has changed costs more than a client's subscriptions may at once: ask for the set anew, and watch fewer or smaller sets"

// errDear ends the work on an expression whose client has spent its share of a round.
var errDear = errors.New("query: a client's subscriptions cost too much")

// meter measures what the work on an expression costs, and ends it at a bound. The zero meter
// has none.
type meter struct {
	bounded     bool
	spent, most int
}

func (m *meter) charge(cost int) error {
	m.spent += cost
	if m.bounded && m.spent > m.most {
		return errDear
	}
	return nil
}

// turn is the work of a client in a round.
type turn struct {
	client string
	before int // what it has spent of late
	spent  int // in this round
	size   int // expressions
	todo   []round
}

// turns is a heap of them, first the one that has spent the least.
type turns []*turn

func (t turns) Len() int      { return len(t) }
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t turns) Less(i, j int) bool { // of two that have spent the same, the one with less to do
	return cmp.Or(cmp.Compare(t[i].before+t[i].spent, t[j].before+t[j].spent), cmp.Compare(t[i].size, t[j].size)) < 0
}
func (t *turns) Push(x any) { *t = append(*t, x.(*turn)) } //nolint:errcheck // there is nothing else
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// takeTurns works out what has changed of expressions between two states, and tells it.
func (h *Watcher) takeTurns(before, now *state, todo []round) {
	waiting := h.turns(todo)
	all, total := slices.Clone(waiting), 0
	for heap.Init(&waiting); len(waiting) > 0; {
		t := waiting[0]
		next := t.todo[0]
		t.todo = t.todo[1:]
		h.meter = meter{bounded: true, most: min(clientBudget-t.spent, roundBudget-total)}
		h.tell(before, now, next)
		t.spent += h.meter.spent
		total += h.meter.spent
		if len(t.todo) == 0 {
			heap.Pop(&waiting)
		} else {
			heap.Fix(&waiting, 0)
		}
	}
	h.meter = meter{}
	h.remember(all)
}

// turns divides the work of a round among the clients: of an expression that several watch, it
// is the one's that has spent the least, since the others' cost it nothing.
func (h *Watcher) turns(todo []round) (all turns) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := map[string]*turn{}
	for _, r := range todo {
		client, least := r.w.left, math.MaxInt
		for s := range r.w.subs {
			if n := h.spent[s.client]; n < least || n == least && s.client < client {
				client, least = s.client, n
			}
		}
		if of[client] == nil {
			of[client] = &turn{client: client, before: h.spent[client]}
			all = append(all, of[client])
		}
		of[client].todo = append(of[client].todo, r)
		of[client].size++
	}
	return all
}

// remember notes what clients have spent. Half of it is forgotten in each round.
func (h *Watcher) remember(all turns) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range all {
		h.spent[t.client] += t.spent
	}
	for client, n := range h.spent {
		if h.spent[client] = n / 2; n < 1<<10 {
			delete(h.spent, client)
		}
	}
}

// nameless returns the expressions whose strings are to be looked up, those that have not
// begun and those with strings that have had no id: first one of each client, then a second,
// and so on. It is called with mu held.
func (h *Watcher) nameless() []*watch {
	var rows [][]*watch // the n-th of each client
	of := map[string]int{}
	for _, some := range []map[*watch]struct{}{h.pending, h.unnamed} {
		for w := range some {
			n := of[w.left]
			of[w.left]++
			if n == len(rows) {
				rows = append(rows, nil)
			}
			rows[n] = append(rows[n], w)
		}
	}
	return slices.Concat(rows...)
}
