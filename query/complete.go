package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// caveats say that an answer may miss something, or rests on a sample, and why.
type caveats struct {
	Incomplete bool   `json:"incomplete,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Sampled    bool   `json:"sampled,omitempty"`
	Sample     string `json:"sample,omitempty"`
}

// incomplete implements tabular.
func (c *caveats) incomplete() string { return c.Reason }

// A gap is why an answer may be incomplete. Functions that look for gaps return the first one as an error.
type gap string

// Error implements error.
func (g gap) Error() string { return string(g) }

// note says in c what a gap is, and returns other errors.
func (c *caveats) note(err error) error {
	if g, ok := errors.AsType[gap](err); ok {
		c.Incomplete, c.Reason = true, string(g)
		return nil
	}
	return err
}

// sampled says in c what an Evaluation sampled.
func (c *caveats) sampled(what string) { c.Sampled, c.Sample = what != "", what }

// A call is one call of a method: its parameters, and what it works with.
type call struct {
	*xrpc.Query

	server *Server
}

// evaluate calls fn with the evaluation of an expression in a state of the graph, and says in c what the answer may miss.
func (q *call) evaluate(ctx context.Context, e *language.Expr, c *caveats, fn func(v *algebra.Evaluation) error) error {
	return q.View(ctx, func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(ctx, sn, e, q.Work)
		if err != nil {
			return err
		}
		*c = caveats{} // an earlier attempt may have set it
		v.Begin()
		if err := c.note(q.missing(v)); err != nil {
			return err
		}
		err = fn(v)
		c.sampled(v.Sampled())
		return err
	})
}

// afterHole returns a gap if the stream had a hole, and the repos have not been
// compared with the relay's list since.
func afterHole(sn *ask.View) error {
	holes, err := sn.Holes()
	if err == nil && holes.Uncompared() {
		return gap("some events were lost, and skein has not yet compared all repos with the relay, so any account may have changed (operators: see /gaps on the admin address)")
	}
	return err
}

// ofEverybody returns the gap in an answer that depends on the records of all accounts.
func (q *call) ofEverybody(sn *ask.View, of ...kinds.Kind) error {
	if err := q.lacks(sn, of...); err != nil {
		return err
	}
	if err := afterHole(sn); err != nil {
		return err
	}
	doubtful := q.Store.Doubtful()
	if !q.Store.Alone() { // other processes know about their accounts
		counts, err := sn.AccountCounts()
		if err != nil {
			return err
		}
		doubtful = counts.Incomplete
	}
	if doubtful > 0 {
		return gap("of some accounts, older records are missing, events were missed, or the repo has not been fetched yet (getStats counts these accounts)")
	}
	if !q.server.hasAccounts.Load() { // read until the index has an account
		counts, err := sn.AccountCounts()
		if err == nil && counts.Accounts == 0 {
			return gap("nothing is indexed yet")
		}
		q.server.hasAccounts.Store(err == nil)
		return err
	}
	return nil
}

// missing returns the gap in an expression's sets. Forward sets, such as follows,
// depend on one account's records; others depend on the whole network. via is the set that a ranking looks up for
// each member: with OpForward or OpListed, the answer also depends on the records of the accounts, or of
// the authors of the lists, in members(…).
func (q *call) missing(v *algebra.Evaluation, via ...language.Op) error {
	d := dependence{v: v}
	if err := d.walk(&v.Expr.Root, via); err != nil {
		return err
	}
	if err := q.ownMissing(v.View, d.names, d.ids, d.kinds...); err != nil {
		return err
	}
	switch {
	case d.labels != nil:
		return d.labels
	case d.everybody:
		return q.ofEverybody(v.View)
	case len(d.ids) > 0:
		return afterHole(v.View)
	}
	return nil
}

// A dependence is what an expression's sets depend on.
type dependence struct {
	v         *algebra.Evaluation
	kinds     []kinds.Kind
	names     []language.Literal // accounts, for their own records
	ids       []dict.ID          // of names
	everybody bool               // on the records of all accounts
	labels    error              // the first gap in a labeler's labels
}

func (d *dependence) on(names []language.Literal, ids []dict.ID) {
	d.names, d.ids = append(d.names, names...), append(d.ids, ids...)
}

// walk looks at a part of the expression. via is the set that a ranking looks up for each of its members.
func (d *dependence) walk(n *language.Node, via []language.Op) error {
	names, ids := d.v.Expr.Strings, d.v.IDs
	if n.Op.IsSet() || n.Op == language.OpRank {
		d.kinds = append(d.kinds, n.Kind)
	}
	switch {
	case n.Op.IsSet() && n.Kind.IsLabel():
		d.labels = cmp.Or(d.labels, missingLabels(d.v.Labeler(n)))
	case n.Op == language.OpForward:
		d.on(names[n.Of:n.Of+1], ids[n.Of:n.Of+1])
	case n.Op == language.OpListed:
		d.on(names[n.By:n.By+1], ids[n.By:n.By+1])
	case n.Op == language.OpReverse, n.Op == language.OpLists, n.Op == language.OpRank: // of a ranking, on the records of accounts that it finds, or of all
		d.everybody = true
	case n.Op == language.OpMembers && slices.Contains(via, language.OpForward):
		d.on(names[n.First:n.End], ids[n.First:n.End])
	case n.Op == language.OpMembers && slices.Contains(via, language.OpListed):
		authors, by, err := d.v.Authors(names[n.First:n.End])
		if err != nil {
			return err
		}
		d.on(authors, by)
	}
	for i := range n.Args {
		if n.Op == language.OpRank { // it reads the records of the members of its first set
			if via = nil; i == 0 {
				via = []language.Op{n.Rank.Via.Op}
			}
		}
		if err := d.walk(&n.Args[i], via); err != nil {
			return err
		}
	}
	return nil
}

// staleLabels is the age of a labeler's state from which it says nothing about the present: while the process
// that reads the labeler runs, it writes the state every minute.
const staleLabels = 5 * time.Minute

// missingLabels returns the gap in the sets of a labeler's labels.
func missingLabels(l ask.Labeler) error {
	var what string
	switch {
	case !l.Missed.IsZero():
		what = fmt.Sprintf("labeler %s no longer has all of its labels: some from before %s are missing", l.DID, l.Missed.Format(time.RFC3339))
	case l.Problem == ask.LabelerRemoved:
		what = fmt.Sprintf("this server no longer reads labeler %s (operators: --labelers); new labels may be missing", l.DID)
	case l.Problem != "": // it may name addresses that are nobody's business
		what = fmt.Sprintf("skein cannot read labeler %s at present; new labels may be missing (operators: see the log)", l.DID)
	case l.Current && time.Since(l.Seen) > staleLabels:
		what = fmt.Sprintf("skein last read labeler %s at %s; new labels may be missing", l.DID, l.Seen.Format(time.RFC3339))
	case !l.Current:
		what = fmt.Sprintf("skein may not have read all labels of %s yet", l.DID)
	default:
		return nil
	}
	return gap(what)
}

// lacks returns a gap if a kind was added later, so that earlier records of it
// may be missing.
func (q *call) lacks(sn *ask.View, of ...kinds.Kind) error {
	lacking, err := sn.Lacking()
	for _, k := range of {
		if at, ok := lacking[k]; ok && err == nil {
			return gap(fmt.Sprintf("%s has been indexed only since %s; skein backfill adds older records", q.Words.Table.Info(k).Source(), at.Format(time.RFC3339)))
		}
	}
	return err
}

// ownMissing returns the gap in the accounts' own records of some kinds.
func (q *call) ownMissing(sn *ask.View, dids []language.Literal, ids []dict.ID, of ...kinds.Kind) error {
	if err := q.lacks(sn, of...); err != nil {
		return err
	}
	return missingOf(sn, dids, ids)
}

// missingOf returns the gap in accounts' own records.
func missingOf(sn *ask.View, dids []language.Literal, ids []dict.ID) error {
	for _, id := range ids {
		sn.BeginAccount(id)
	}
	for i, id := range ids {
		did := dids[i].S
		if id == dict.None {
			return gap("the index has never seen " + did)
		}
		if sn.IsHidden(id) {
			continue
		}
		st, known, row, err := sn.AccountAndQueue(id)
		state := stateOf(&st, known)
		switch {
		case err != nil:
			return err
		case state != "unknown" && row != nil && row.State == ask.ResyncFailed:
			return gap(fmt.Sprintf("the repo of %s may have changed and could not be fetched (%s); getAccount has the details", did, row.Failure))
		case state != "complete":
			return gap(fmt.Sprintf(accountStates[state].gap, did))
		}
	}
	return nil
}

// accountStates are the states of accounts' own records, with what getAccount and other answers say.
var accountStates = map[string]struct{ description, gap string }{
	"complete":       {description: "The full history of this account's own records is indexed."},
	"unknown":        {"The index has no records of this account.", "the index has no records of %s"},
	"desynchronized": {"The index missed some of this account's events.", "the index missed some events of %s and has not refetched its repo yet"},
	"partial":        {"Records from before the index first saw this account are missing.", "records of %s from before the index first saw it are missing"},
	"queued":         {"The repo may have changed; skein will refetch it.", "the repo of %s may have changed; skein will refetch it"},
	"unverified":     {description: "Some events were lost. This account may have changed since skein last checked it."},
}

// stateOf returns the state of an account's own records.
func stateOf(st *ask.RepoState, known bool) string {
	switch {
	case !known || !st.Has(ask.FlagHasRev):
		return "unknown"
	case st.Has(ask.FlagDesync):
		return "desynchronized"
	case st.Has(ask.FlagPartial):
		return "partial"
	case !st.Complete():
		return "queued"
	}
	return "complete"
}
