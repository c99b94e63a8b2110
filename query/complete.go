package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// caveats say that an answer may miss something, or rests on a sample, and why; or what proves that it is complete.
type caveats struct {
	Incomplete bool              `json:"incomplete,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Missing    *evidence.Missing `json:"missing,omitempty"`
	Proof      *evidence.Proof   `json:"proof,omitempty"` // if it was asked for
	Sampled    bool              `json:"sampled,omitempty"`
	Sample     string            `json:"sample,omitempty"`
	Handles    map[string]string `json:"handles,omitempty"` // of the accounts, if they were asked for
}

// note says in c what is missing, if err is that, and returns other errors.
func (c *caveats) note(err error) error {
	m, ok := errors.AsType[*evidence.Missing](err)
	if !ok {
		return err
	}
	if !c.Incomplete {
		c.Incomplete, c.Reason = true, m.Reason
	}
	c.Missing, c.Proof = c.Missing.Add(m), nil
	return nil
}

// sampled says in c what an Evaluation sampled.
func (c *caveats) sampled(what string) { c.Sampled, c.Sample = what != "", what }

// A call is one call of a method: its parameters, and what it works with.
type call struct {
	*xrpc.Query

	server *Server
	begin  func(v *algebra.Evaluation) // if set, it prepares the evaluation
}

// evaluate calls fn with the evaluation of an expression in a state of the graph, and says in c what the answer may miss.
func (q *call) evaluate(ctx context.Context, e *language.Expr, needs []evidence.Need, c *caveats, fn func(v *algebra.Evaluation) error) error {
	return q.View(ctx, func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(ctx, sn, e, q.Work)
		if err != nil {
			return err
		}
		if q.begin != nil {
			q.begin(v)
		}
		v.Begin()
		if err := q.rests(sn, c, func(cl *claim) error { return cl.on(v, needs) }); err != nil {
			return err
		}
		err = fn(v)
		c.sampled(v.Sampled())
		return err
	})
}

// rests says in c what is missing of what an answer rests on, which on tells, or what proves that nothing is.
func (q *call) rests(sn *ask.View, c *caveats, on func(cl *claim) error) error {
	*c = caveats{} // an earlier attempt may have set it
	cl := q.claim(sn)
	err := on(cl)
	if err == nil {
		err = cl.settle(c)
	}
	return c.note(err)
}

// A claim collects what an answer rests on, in one state of the graph.
type claim struct {
	q      *call
	sn     *ask.View
	index  evidence.Index
	proves bool // the client asked for the proof

	states    map[any]*evidence.Account // those that were read, by id, or by DID if they have none
	everybody bool
	lacking   map[any]bool // those with missing records
	missing   *evidence.Missing
	labelers  []string
}

func (q *call) claim(sn *ask.View) *claim {
	return &claim{q: q, sn: sn, index: evidence.IndexOf(sn), proves: q.Boolean("proof"), states: map[any]*evidence.Account{}, lacking: map[any]bool{}}
}

// lacks notes what is missing of an account, or of everybody.
func (c *claim) lacks(m *evidence.Missing) { c.missing = c.missing.Add(m) }

// on notes what the parts of an expression depend on.
func (c *claim) on(v *algebra.Evaluation, needs []evidence.Need) error {
	for i := range needs {
		if err := c.need(v, &needs[i]); err != nil {
			return err
		}
	}
	counts := func(n evidence.Need) bool { return n.Kind == kinds.ListMember } // the sizes of lists are of accounts
	if slices.ContainsFunc(needs, counts) || slices.ContainsFunc(slices.Collect(v.Expr.Root.All()), func(n *language.Node) bool { return n.Is == dict.DID }) {
		c.lacks(c.index.Statuses())
	}
	return nil
}

func (c *claim) need(v *algebra.Evaluation, need *evidence.Need) error {
	if need.Joined {
		c.lacks(c.index.Kind(c.sn.Self(need.Kind), need.Window, need.Everybody == nil))
	}
	switch n := need.Own; {
	case need.Labels != nil:
		if did := v.Expr.LabelerOf(need.Labels); !slices.Contains(c.labelers, did) {
			c.labelers = append(c.labelers, did)
			c.lacks(evidence.Labeler(v.Labeler(need.Labels), time.Now()))
		}
	case need.Everybody != nil:
		subject := ""
		if of := need.Everybody; of.Op.IsSet() {
			subject = v.Expr.Strings[of.Of].S
		}
		c.ofEverybody(subject, need.Window, need.Kind)
	case n != nil:
		of := n.Of
		if n.Op == language.OpListed {
			of = n.By
		}
		return c.own(v.Expr.Strings[of:of+1], v.IDs[of:of+1], need.Window, need.Kind)
	default:
		return c.members(v, need)
	}
	return nil
}

// ofEverybody notes that the answer depends on the records of a kind of all accounts that name a subject, "" for any.
func (c *claim) ofEverybody(subject string, w language.Window, of kinds.Kind) {
	c.everybody = true
	c.lacks(c.index.Everybody(subject, of, w))
}

// own notes that the answer depends on the accounts' own records of some kinds.
func (c *claim) own(names []language.Literal, ids []dict.ID, w language.Window, of ...kinds.Kind) error {
	unseen := slices.DeleteFunc(slices.Clone(ids), func(id dict.ID) bool { return id == dict.None || c.states[id] != nil })
	slices.Sort(unseen)
	err := c.sn.States(unseen, func(i int, st graph.RepoState, known bool) error {
		if id := unseen[i]; !st.Has(graph.FlagResync) { // else its row is read, too
			c.states[id] = &evidence.Account{State: st, Known: known, Unwritten: c.index.Unwritten.Has("", id)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, id := range ids {
		if err := c.account(names[i].S, id, w, of); err != nil {
			return err
		}
	}
	return nil
}

// account notes that the answer depends on an account's own records of some kinds. did may be "" if it has an id.
func (c *claim) account(did string, id dict.ID, w language.Window, of []kinds.Kind) (err error) {
	key := any(id)
	if id == dict.None {
		if key = did; !dict.ValidDID(did) { // a text, or an AT URI with a handle, has no author
			return nil
		}
	}
	a := c.states[key]
	if a == nil {
		a = &evidence.Account{DID: did}
		if id != dict.None {
			if a.State, a.Known, a.Queued, err = c.sn.AccountAndQueue(id); err != nil {
				return err
			}
		}
		a.Unwritten = c.index.Unwritten.Has(did, id)
		c.states[key] = a
	}
	a.DID = cmp.Or(a.DID, did)
	for _, k := range of {
		m := c.index.Own(a, k, w)
		if m == nil || c.lacking[key] {
			continue
		}
		c.lacking[key] = true
		if a.DID == "" && c.missing == nil { // the reason names it
			if err := c.sn.Strings(dict.DID, []dict.ID{id}, func(_ int, s []byte) error { a.DID = string(s); return nil }); err != nil {
				return err
			}
			m = c.index.Own(a, k, w)
		}
		m.Accounts = 0 // settle counts them
		c.lacks(m)
	}
	return nil
}

// mostStates bounds the accounts whose states are read for one set: of more, all accounts must be known.
const mostStates = 100_000

// members notes that the answer depends on the own records of the accounts that are in all of some sets, or of the authors of
// the records in them.
func (c *claim) members(v *algebra.Evaluation, need *evidence.Need) error {
	if !c.proves && c.index.Everybody("", need.Kind, need.Window) == nil {
		return nil
	}
	var set sets.Set
	for i, n := range need.Members {
		members, err := v.Set(n)
		if err != nil {
			return err
		}
		if set = sets.And(set, members); i == 0 {
			set = members
		}
	}
	if set.Len() > mostStates {
		c.ofEverybody("", need.Window, need.Kind)
		return nil
	}
	var accounts sets.Collector
	var names []language.Literal // of members(…) that the index does not know
	for id := range set.All() {
		if dict.ID(id) >= dict.FirstReserved {
			names = append(names, v.Expr.Strings[dict.ID(id)-dict.FirstReserved])
		} else if need.Members[0].Is == dict.DID {
			accounts.Add(id)
		}
	}
	if need.Members[0].Is != dict.DID {
		err := algebra.AuthorsOf(v, set, func(record, author dict.ID, _ ask.Path) {
			if record < dict.FirstReserved { // the others are in names
				accounts.Add(uint64(author))
			}
		})
		if err != nil {
			return err
		}
	}
	by, known, err := v.Authors(names)
	if err := errors.Join(err, c.own(by, known, need.Window, need.Kind)); err != nil {
		return err
	}
	return c.each(v.Ended, accounts.Set(), need.Window, need.Kind)
}

// each is own of the accounts in a set.
func (c *claim) each(ended algebra.Ended, accounts sets.Set, w language.Window, of kinds.Kind) error {
	switch {
	case !c.proves && c.index.Everybody("", of, w) == nil:
		return nil
	case accounts.Len() > mostStates:
		c.ofEverybody("", w, of)
		return nil
	}
	for id := range ask.Ahead(c.sn, accounts.All(), func(id uint64) { c.sn.BeginAccount(dict.ID(id)) }) {
		if err := errors.Join(ended.Err(), c.account("", dict.ID(id), w, []kinds.Kind{of})); err != nil {
			return err
		}
	}
	return nil
}

// settle says what is missing, or what proves that nothing is.
func (c *claim) settle(to *caveats) error {
	if c.missing != nil {
		c.missing.Accounts = max(c.missing.Accounts, int64(len(c.lacking)))
		return c.missing
	}
	if !c.proves {
		return nil
	}
	p := &evidence.Proof{Accounts: len(c.states), Sources: slices.Clone(c.labelers)}
	var oldest time.Time
	roster := c.everybody
	for _, a := range c.states {
		if roster = roster || !a.State.Has(graph.FlagHasRev); a.State.Has(graph.FlagHasRev) {
			oldest = earlier(oldest, time.UnixMicro(int64(ask.MicrosOf(uint64(a.State.Rev)))))
		}
	}
	if c.everybody {
		p.Accounts, oldest = "everybody", time.Time{}
	}
	if roster { // that an account without a rev has no records rests on it, too
		p.Sources, oldest = append(p.Sources, c.index.Past.Roster.Source), earlier(oldest, c.index.Past.Roster.AsOf)
	}
	cursors, err := c.sn.Cursors()
	var through time.Time
	for _, cursor := range cursors {
		p.Sources = append(p.Sources, sourceName(cursor.Source))
		if cursor.IsStream() && cursor.Time.After(through) {
			through = cursor.Time
		}
	}
	slices.Sort(p.Sources)
	p.Sources = slices.DeleteFunc(slices.Compact(p.Sources), func(s string) bool { return s == "" })
	if since := c.index.Holes.Unbroken; !since.After(through) { // by the clock of this machine: events of a recording are older
		p.Since = stamp(since)
	}
	p.Through, p.Oldest = stamp(through), stamp(oldest)
	to.Proof = p
	return err
}

// earlier returns the earlier of two times. The zero time stands for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// stamp writes a time for clients, "" if it is not known.
func stamp(t time.Time) string {
	if t.Unix() <= 0 {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
