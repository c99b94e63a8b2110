package query

import (
	"cmp"
	"context"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
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
		a := evidence.Account{DID: out.DID}
		var err error
		if a.State, a.Known, a.Queued, err = sn.Account(out.DID); err != nil {
			return err
		}
		cl := q.claim(sn)
		a.Unwritten = cl.index.Unwritten.Has(out.DID, dict.None)
		out.describe(&cl.index, &a)
		if row := a.Queued; row != nil {
			out.Queued = &queuedAccount{cmp.Or(row.State, "waiting"), row.Reason, row.Queued.UTC().Format(time.RFC3339), row.Failure, row.Detail}
		}
		ids, err := algebra.Lookup(sn, account)
		if err != nil {
			return err
		}
		for i := range q.Words.Table.All {
			k := &q.Words.Table.All[i]
			if err := sn.RecordCounts(k.Kind, ids[:1], func(_ int, n uint64) error {
				if n > 0 {
					out.Records[k.Name] = int64(n)
				}
				return nil
			}); err != nil {
				return err
			}
			if m := cl.index.Kind(k.Kind, language.Window{}, true); m != nil && out.State == evidence.Complete {
				out.State, out.Description, out.Partial = evidence.Partial, m.Reason, true
			}
		}
		return nil
	})
	return out, err
}

// describe sets the account's state and a sentence that explains it.
func (a *accountState) describe(x *evidence.Index, of *evidence.Account) {
	st := &of.State
	if st.Has(graph.FlagHasRev) {
		a.Rev, a.Time = st.Rev.String(), stamp(time.UnixMicro(int64(ask.MicrosOf(uint64(st.Rev)))))
	}
	a.State = x.Account(of)
	a.Description = evidence.Description(a.State)
	a.Partial, a.Desync = st.Has(graph.FlagPartial) || a.State == evidence.Unknown, st.Has(graph.FlagDesync)
	if a.Active = !st.Has(graph.FlagHidden); !a.Active {
		a.Description = "The account is inactive, so it does not appear in answers. " + a.Description
	}
}
