package query

import (
	"fmt"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// completeness says of an answer that something may be missing in it, and why.
type completeness struct {
	Incomplete bool   `json:"incomplete,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

const somebodysPast = "the past of some accounts is not indexed, or something of them was missed: they, and what they did, may be missing here (getStats counts them)"

// ofEverybody is the completeness of an answer in which the records of any account may count.
func (s *Server) ofEverybody(sn *graph.Snapshot, of ...kinds.Kind) (completeness, error) {
	lacking, err := sn.Lacking()
	if err != nil {
		return completeness{}, err
	}
	if c := s.lacks(lacking, of...); c.Incomplete {
		return c, nil
	}
	desynchronized, partial := s.store.Incomplete()
	if !s.store.Alone() { // the others know of theirs
		counts, err := sn.Counts()
		if err != nil {
			return completeness{}, err
		}
		desynchronized, partial = counts.Desynchronized, counts.Partial
	}
	if desynchronized+partial > 0 {
		return completeness{true, somebodysPast}, nil
	}
	if !s.anybody.Load() { // it is asked until there is somebody
		counts, err := sn.Counts()
		if err != nil || counts.Accounts == 0 {
			return completeness{true, "nothing is indexed yet"}, err
		}
		s.anybody.Store(true)
	}
	return completeness{}, nil
}

// missing says what may be missing in the sets of an expression: of a set of what an account
// names, whether all of that account is known, of other sets, whether all of everybody is.
// With expanded, what its members name counts, too: then those that it names as members must
// be known.
func (s *Server) missing(v *evaluation, expanded bool) (c completeness, err error) {
	lacking, err := v.s.Lacking()
	if err != nil {
		return c, err
	}
	asked := map[dict.ID]bool{}
	everybody := false
	var walk func(n *node) error
	walk = func(n *node) error {
		if n.op.isSet() && !c.Incomplete {
			c = s.lacks(lacking, n.kind)
		}
		first, last := 0, 0 // the accounts that it rests on
		switch {
		case n.op == opForward:
			first, last = n.of, n.of+1
		case n.op == opListed:
			first, last = n.by, n.by+1
		case n.op == opReverse, n.op == opLists:
			everybody = true
		case n.op == opMembers && expanded:
			first, last = n.first, n.last
		}
		for by := first; by < last && !c.Incomplete; by++ {
			if id := v.ids[by]; !asked[id] || id == dict.None {
				asked[id] = true
				if c, err = missingOf(v.s, v.e.strings[by].s, id); err != nil {
					return err
				}
			}
		}
		for i := range n.args {
			if err := walk(&n.args[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(&v.e.root); err != nil || c.Incomplete || !everybody {
		return c, err
	}
	return s.ofEverybody(v.s)
}

// lacks says whether what was made of a kind before it was added is missing.
func (s *Server) lacks(lacking map[kinds.Kind]time.Time, of ...kinds.Kind) completeness {
	for _, k := range of {
		if at, ok := lacking[k]; ok {
			return completeness{true, fmt.Sprintf("%s is indexed since %s: what was made of it before is not there, until it is fetched (skein backfill)", s.words.table.Info(k).Source(), at.Format(time.RFC3339))}
		}
	}
	return completeness{}
}

// missingOf says what of an account's own records may be missing.
func missingOf(sn *graph.Snapshot, did string, id dict.ID) (completeness, error) {
	if id == dict.None {
		return completeness{true, "nothing is indexed of " + did}, nil
	}
	if sn.IsHidden(id) {
		return completeness{}, nil
	}
	st, known, err := sn.AccountOf(id)
	switch {
	case err != nil:
		return completeness{}, err
	case !known || !st.Has(format.FlagHasRev):
		return completeness{true, "nothing is indexed that " + did + " did"}, nil
	case st.Has(format.FlagDesync):
		return completeness{true, fmt.Sprintf("something that %s did was missed, and not fetched yet", did)}, nil
	case st.Has(format.FlagPartial):
		return completeness{true, fmt.Sprintf("what %s did before the index heard of it is not indexed", did)}, nil
	}
	return completeness{}, nil
}
