package query

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// completeness reports that an answer may miss something, and why.
type completeness struct {
	Incomplete bool   `json:"incomplete,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

// incomplete implements tabular.
func (c completeness) incomplete() string { return c.Reason }

// sampling reports that an answer rests on a sample, and of what.
type sampling struct {
	Sampled bool   `json:"sampled,omitempty"`
	Sample  string `json:"sample,omitempty"`
}

// sampledIn returns what an Evaluation sampled.
func sampledIn(what string) sampling { return sampling{what != "", what} }

// An index is what the server asks, with what tells how complete it is.
type index struct {
	store       *graph.Store
	words       *language.Vocabulary
	hasAccounts atomic.Bool // the index has an account
}

// A call is one call of a method: its parameters, and what it works with.
type call struct {
	*xrpc.Query
	*index
}

// someIncomplete is the reason for answers that depend on all accounts.
const someIncomplete = "of some accounts, older records are missing, events were missed, or the repo has not been fetched yet (getStats counts these accounts)"

// afterHole reports an incomplete answer if the stream had a hole, and the repos have not been
// compared with the relay's list since.
func afterHole(sn *ask.View) (completeness, error) {
	uncompared, err := sn.Uncompared()
	if err != nil || !uncompared {
		return completeness{}, err
	}
	return completeness{true, "some events were lost, and skein has not yet compared all repos with the relay, so any account may have changed (operators: see /gaps on the admin address)"}, nil
}

// ofEverybody returns the completeness of an answer that depends on the records of all
// accounts.
func (x *index) ofEverybody(sn *ask.View, of ...kinds.Kind) (completeness, error) {
	lacking, err := sn.Lacking()
	if err != nil {
		return completeness{}, err
	}
	if c := x.lacks(lacking, of...); c.Incomplete {
		return c, nil
	}
	if c, err := afterHole(sn); err != nil || c.Incomplete {
		return c, err
	}
	doubtful := x.store.Doubtful()
	if !x.store.Alone() { // other processes know about their accounts
		counts, err := sn.AccountCounts()
		if err != nil {
			return completeness{}, err
		}
		doubtful = counts.Incomplete
	}
	if doubtful > 0 {
		return completeness{true, someIncomplete}, nil
	}
	if !x.hasAccounts.Load() { // read until the index has an account
		counts, err := sn.AccountCounts()
		if err != nil || counts.Accounts == 0 {
			return completeness{true, "nothing is indexed yet"}, err
		}
		x.hasAccounts.Store(true)
	}
	return completeness{}, nil
}

// missing returns the completeness of an expression's sets. Forward sets, such as follows,
// depend on one account's records; others depend on the whole network. via is the set that a ranking looks up for
// each member: with OpForward or OpListed, the answer also depends on the records of the accounts, or of
// the authors of the lists, in members(…).
func (x *index) missing(v *algebra.Evaluation, via ...language.Op) (completeness, error) {
	lacking, err := v.View.Lacking()
	if err != nil {
		return completeness{}, err
	}
	g := gaps{x: x, v: v, lacking: lacking, asked: map[dict.ID]bool{}}
	if err := g.walk(&v.Expr.Root, via); err != nil || g.found.Incomplete {
		return g.found, err
	}
	switch {
	case g.everybody:
		return x.ofEverybody(v.View)
	case g.anybody:
		return afterHole(v.View)
	}
	return g.found, nil
}

// gaps looks for what may be missing from an expression's sets.
type gaps struct {
	x                  *index
	v                  *algebra.Evaluation
	lacking            map[kinds.Kind]time.Time
	asked              map[dict.ID]bool // accounts
	everybody, anybody bool             // whether the sets depend on the records of all accounts, or of some
	found              completeness     // the first gap
}

// accounts looks at accounts whose own records the sets depend on.
func (g *gaps) accounts(dids []language.Literal, ids []dict.ID) (err error) {
	if !g.found.Incomplete {
		beginAccounts(g.v.View, ids)
	}
	for i, id := range ids {
		if err == nil && !g.found.Incomplete && (!g.asked[id] || id == dict.None) {
			g.asked[id] = true
			g.found, err = missingOf(g.v.View, dids[i].S, id)
		}
	}
	return err
}

// walk looks at a part of the expression. via is the set that a ranking looks up for each of its members.
func (g *gaps) walk(n *language.Node, via []language.Op) (err error) {
	e := g.v.Expr
	if (n.Op.IsSet() || n.Op == language.OpRank) && !g.found.Incomplete {
		g.found = g.x.lacks(g.lacking, n.Kind)
	}
	own := n.Op == language.OpMembers && slices.Contains(via, language.OpForward)
	authors := n.Op == language.OpMembers && slices.Contains(via, language.OpListed)
	labels := n.Op.IsSet() && n.Kind.IsLabel()
	if labels && !g.found.Incomplete {
		g.found = missingLabels(g.v.Labeler(n))
	}
	g.anybody = g.anybody || n.Op.IsSet() && !labels || own || authors
	switch {
	case n.Op == language.OpForward:
		err = g.accounts(e.Strings[n.Of:n.Of+1], g.v.IDs[n.Of:n.Of+1])
	case n.Op == language.OpListed:
		err = g.accounts(e.Strings[n.By:n.By+1], g.v.IDs[n.By:n.By+1])
	case labels:
	case n.Op == language.OpReverse, n.Op == language.OpLists:
		g.everybody = true
	case n.Op == language.OpRank: // on the records of accounts that it finds, or of all
		g.everybody = true
	case own:
		err = g.accounts(e.Strings[n.First:n.End], g.v.IDs[n.First:n.End])
	case authors:
		var names []language.Literal
		var ids []dict.ID
		if names, ids, err = g.v.Authors(e.Strings[n.First:n.End]); err == nil {
			err = g.accounts(names, ids)
		}
	}
	for i := range n.Args {
		if n.Op == language.OpRank { // it reads the records of the members of its first set
			if via = nil; i == 0 {
				via = []language.Op{n.Rank.Via.Op}
			}
		}
		if err == nil {
			err = g.walk(&n.Args[i], via)
		}
	}
	return err
}

// staleLabels is the age of a labeler's state from which it says nothing about the present: while the process
// that reads the labeler runs, it writes the state every minute.
const staleLabels = 5 * time.Minute

// missingLabels returns the completeness of the sets of a labeler's labels.
func missingLabels(l ask.Labeler) completeness {
	switch {
	case !l.Missed.IsZero():
		return completeness{true, fmt.Sprintf("labeler %s no longer has all of its labels: some from before %s are missing", l.DID, l.Missed.Format(time.RFC3339))}
	case l.Problem == ask.LabelerRemoved:
		return completeness{true, fmt.Sprintf("this server no longer reads labeler %s (operators: --labelers); new labels may be missing", l.DID)}
	case l.Problem != "": // it may name addresses that are nobody's business
		return completeness{true, fmt.Sprintf("skein cannot read labeler %s at present; new labels may be missing (operators: see the log)", l.DID)}
	case l.Current && time.Since(l.Seen) > staleLabels:
		return completeness{true, fmt.Sprintf("skein last read labeler %s at %s; new labels may be missing", l.DID, l.Seen.Format(time.RFC3339))}
	case !l.Current:
		return completeness{true, fmt.Sprintf("skein may not have read all labels of %s yet", l.DID)}
	}
	return completeness{}
}

// lacks reports an incomplete answer if a kind was added later, so that earlier records of it
// may be missing.
func (x *index) lacks(lacking map[kinds.Kind]time.Time, of ...kinds.Kind) completeness {
	for _, k := range of {
		if at, ok := lacking[k]; ok {
			return completeness{true, fmt.Sprintf("%s has been indexed only since %s; skein backfill adds older records", x.words.Table.Info(k).Source(), at.Format(time.RFC3339))}
		}
	}
	return completeness{}
}

// beginAccounts begins the reads of missingOf.
func beginAccounts(sn *ask.View, ids []dict.ID) {
	for _, id := range ids {
		sn.BeginAccount(id)
	}
}

// missingOf returns the completeness of an account's own records.
func missingOf(sn *ask.View, did string, id dict.ID) (completeness, error) {
	if id == dict.None {
		return completeness{true, "the index has never seen " + did}, nil
	}
	if sn.IsHidden(id) {
		return completeness{}, nil
	}
	st, known, row, err := sn.AccountAndQueue(id)
	switch {
	case err != nil:
		return completeness{}, err
	case !known || !st.Has(ask.FlagHasRev):
		return completeness{true, "the index has no records of " + did}, nil
	case row != nil && row.State == ask.ResyncFailed:
		return completeness{true, fmt.Sprintf("the repo of %s may have changed and could not be fetched (%s); getAccount has the details", did, row.Failure)}, nil
	case st.Has(ask.FlagDesync):
		return completeness{true, fmt.Sprintf("the index missed some events of %s and has not refetched its repo yet", did)}, nil
	case st.Has(ask.FlagPartial):
		return completeness{true, fmt.Sprintf("records of %s from before the index first saw it are missing", did)}, nil
	case !st.Complete():
		return completeness{true, fmt.Sprintf("the repo of %s may have changed; skein will refetch it", did)}, nil
	}
	return completeness{}, nil
}
