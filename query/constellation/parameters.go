package constellation

import (
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// maxDIDs is the largest number of accounts that limit one call.
const maxDIDs = 100

func missing(name string) error { return xrpc.Invalid("parameter %q is missing", name) }

// authors limit an answer to the records of some accounts, if any are given.
type authors struct {
	dids  []language.Literal
	given bool
}

// authorsOf reads the values of a parameter. A value that is not a DID has no records.
func authorsOf(values []string) (a authors) {
	for _, did := range values {
		if did = strings.TrimSpace(did); did != "" {
			a.given = true
			if dict.ValidDID(did) {
				a.dids = append(a.dids, language.Literal{S: did, Is: dict.DID})
			}
		}
	}
	return a
}

// of returns the authors in a set.
func (a *authors) of(sn *ask.View, set sets.Set) (sets.Set, error) {
	if !a.given {
		return set, nil
	}
	ids, err := algebra.Lookup(sn, a.dids)
	var given []uint64
	for _, id := range ids { // None is in no set
		given = append(given, uint64(id))
	}
	return sets.And(set, sets.FromUnsorted(given)), err
}
