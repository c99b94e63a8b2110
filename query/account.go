package query

import (
	"cmp"
	"context"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
)

// accountState is what the index has of an account.
type accountState struct {
	DID         string           `json:"did"`
	State       string           `json:"state"`
	Description string           `json:"description"`
	Active      bool             `json:"active"`
	Partial     bool             `json:"partial"`
	Desync      bool             `json:"desynchronized"`
	Rev         string           `json:"rev,omitempty"`
	Time        string           `json:"time,omitempty"` // of rev
	Queued      *queuedAccount   `json:"queued,omitempty"`
	Records     map[string]int64 `json:"records"` // by kind
}

// queuedAccount is an account whose repo is queued for a fetch.
type queuedAccount struct {
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Since   string `json:"since"`
	Failure string `json:"failure,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// getAccount describes what the index has of one account, and what it lacks.
func getAccount(ctx context.Context, q *call) (any, error) {
	account, err := q.List("did", 1, kinds.DID)
	if err != nil {
		return nil, err
	}
	var out accountState
	err = q.View(ctx, func(sn *ask.View) error {
		out = accountState{DID: account[0].S, Active: true, Records: map[string]int64{}}
		st, known, row, err := sn.Account(account[0].S)
		if err != nil {
			return err
		}
		out.describe(&st, known)
		if c, err := afterHole(sn); err != nil {
			return err
		} else if c.Incomplete && out.State == "complete" {
			out.State, out.Description = "unverified", "Some events were lost. This account may have changed since skein last checked it."
		}
		lacking, err := sn.Lacking()
		if err != nil {
			return err
		}
		for i := range q.Words.Table.All {
			if k := &q.Words.Table.All[i]; out.State == "complete" {
				if c := q.lacks(lacking, k.Kind); c.Incomplete {
					out.State, out.Description, out.Partial = "partial", c.Reason, true
				}
			}
		}
		if row != nil {
			out.Queued = &queuedAccount{cmp.Or(row.State, "waiting"), row.Reason, row.Queued.UTC().Format(time.RFC3339), row.Failure, row.Detail}
		}
		ids, err := algebra.Lookup(sn, account)
		if err != nil {
			return err
		}
		for i := range q.Words.Table.All {
			k := &q.Words.Table.All[i]
			n, err := sn.RecordCount(k.Kind, ids[0])
			if err != nil {
				return err
			}
			if n > 0 {
				out.Records[k.Name] = n
			}
		}
		return nil
	})
	return out, err
}

// describe sets the account's state and a sentence that explains it.
func (a *accountState) describe(st *ask.RepoState, known bool) {
	if st.Has(ask.FlagHasRev) {
		a.Rev = st.Rev.String()
		if tid, ok := dict.ParseTID([]byte(a.Rev)); ok {
			a.Time = time.UnixMicro(int64(ask.MicrosOf(tid))).UTC().Format(time.RFC3339)
		}
	}
	a.Partial, a.Desync = st.Has(ask.FlagPartial), st.Has(ask.FlagDesync)
	switch {
	case !known || !st.Has(ask.FlagHasRev):
		a.State, a.Description, a.Partial = "unknown", "The index has no records of this account.", true
	case st.Has(ask.FlagDesync):
		a.State, a.Description = "desynchronized", "The index missed some of this account's events."
	case st.Has(ask.FlagPartial):
		a.State, a.Description = "partial", "Records from before the index first saw this account are missing."
	case !st.Complete():
		a.State, a.Description = "queued", "The repo may have changed; skein will refetch it."
	default:
		a.State, a.Description = "complete", "The full history of this account's own records is indexed."
	}
	if a.Active = !st.Has(ask.FlagHidden); !a.Active {
		a.Description = "The account is inactive, so it does not appear in answers. " + a.Description
	}
}
