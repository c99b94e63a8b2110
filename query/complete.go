package query

import (
	"fmt"

	"skein/graph"
	"skein/graph/format"
	"skein/intern/dict"
)

// completeness says of an answer that something may be missing in it, and why.
type completeness struct {
	Incomplete bool   `json:"incomplete,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

const somebodysPast = "the past of some accounts is not indexed, or something of them was missed: they, and what they did, may be missing here (getStats counts them)"

// ofEverybody is the completeness of an answer in which the records of any account may count.
func (s *Server) ofEverybody(sn *graph.Snapshot) (completeness, error) {
	desynchronized, partial := s.store.Incomplete()
	if s.store.ReadOnly() { // the writers know
		counts, err := sn.Counts()
		if err != nil {
			return completeness{}, err
		}
		desynchronized, partial = counts.Desynchronized, counts.Partial
	}
	if desynchronized+partial > 0 {
		return completeness{true, somebodysPast}, nil
	}
	return completeness{}, nil
}

// missing says what may be missing in the sets of an expression: of a set of what an account
// names, whether all of that account is known, of other sets, whether all of everybody is.
func (s *Server) missing(v *evaluation) (c completeness, err error) {
	asked := map[dict.ID]bool{}
	everybody := false
	var walk func(n *node) error
	walk = func(n *node) error {
		by := -1
		switch n.op {
		case opForward:
			by = n.of
		case opListed:
			by = n.by
		case opReverse, opLists:
			everybody = true
		default:
		}
		if by >= 0 && !c.Incomplete && (!asked[v.ids[by]] || v.ids[by] == dict.None) {
			asked[v.ids[by]] = true
			if c, err = missingOf(v.s, v.e.strings[by].s, v.ids[by]); err != nil {
				return err
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
