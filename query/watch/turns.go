package watch

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"skein.blue/intern/dict"
)

// In a round, clients take turns: the next expression belongs to the client that has spent the
// least, recently and in this round. So clients with few changes are served before those with
// expensive subscriptions, whose cost delays nobody else. The budget of a round is bounded, and
// so is the delay of the next round.

// Budgets of a round, in the units of Store.ViewCharged (bytes, and 512 for a look-up of a key)
// and the costs below. 64 MiB is about a hundred thousand look-ups, or a list of half a million
// accounts in both states: a few tenths of a second.
const (
	clientBudget = 64 << 20
	roundBudget  = 2 * clientBudget

	memberCost = 16 // checking a member against a set in memory
	recordCost = 32 // reading a record
)

// overBudget is the reason of a reset after the client has used up its budget.
const overBudget = "computing the changes exceeds the budget of a client's subscriptions: query the set again, and watch fewer or smaller sets"

// errOverBudget ends the work on an expression whose client has used up its budget of the round.
var errOverBudget = errors.New("query: a client's subscriptions exceed their budget")

// meter counts the cost of the work on an expression, and ends it at a limit. The zero meter has
// no limit.
type meter struct {
	bounded     bool
	spent, most int
}

func (m *meter) charge(cost int) error {
	m.spent += cost
	if m.bounded && m.spent > m.most {
		return errOverBudget
	}
	return nil
}

// turn is the work of a client in a round.
type turn struct {
	client string
	before int // cost of recent rounds
	spent  int // cost of this round
	size   int // expressions
	todo   []task
}

// order compares two turns: first comes the client that has spent the least, at equal cost the one with fewer expressions.
func (t *turn) order(x *turn) int {
	return cmp.Or(cmp.Compare(t.before+t.spent, x.before+x.spent), cmp.Compare(t.size, x.size))
}

// takeTurns computes and sends the changes of expressions between two states.
func (h *Watcher) takeTurns(before, now *state, todo []task) {
	all, total := h.turns(todo), 0
	for waiting := slices.Clone(all); len(waiting) > 0; {
		t := slices.MinFunc(waiting, (*turn).order)
		next := t.todo[0]
		t.todo = t.todo[1:]
		h.meter = meter{bounded: true, most: min(clientBudget-t.spent, roundBudget-total)}
		h.notify(before, now, next)
		t.spent += h.meter.spent
		total += h.meter.spent
		if len(t.todo) == 0 {
			waiting = slices.DeleteFunc(waiting, func(x *turn) bool { return x == t })
		}
	}
	h.meter = meter{}
	h.recordSpending(all)
}

// turns divides the work of a round among the clients. If several clients watch an expression,
// it counts for the one that has spent the least.
func (h *Watcher) turns(todo []task) (all []*turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := map[string]*turn{}
	for _, r := range todo {
		client, least := r.w.lastClient, math.MaxInt
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

// recordSpending adds the clients' costs to the recent costs, which halve each round.
func (h *Watcher) recordSpending(all []*turn) {
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

// unresolvedByTurn returns the expressions whose strings need a look-up: new ones, and those with
// strings without an id. Clients take turns: first one expression of each client, then a second
// of each, and so on. It is called with mu held.
func (h *Watcher) unresolvedByTurn() []*watch {
	var rows [][]*watch // the n-th of each client
	of := map[string]int{}
	for _, begun := range []bool{false, true} {
		for _, w := range h.watches {
			if w.begun != begun || begun && !slices.Contains(w.ids, dict.None) {
				continue
			}
			n := of[w.lastClient]
			of[w.lastClient]++
			if n == len(rows) {
				rows = append(rows, nil)
			}
			rows[n] = append(rows[n], w)
		}
	}
	return slices.Concat(rows...)
}
