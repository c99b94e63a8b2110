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

// maxDIDs is the largest number of accounts, or of other subjects, that limit one call.
const maxDIDs = 100

// sourceOf reads the parameter source: a collection, and a path in its records.
func sourceOf(q *xrpc.Query) (collection, path string, err error) {
	collection, path, ok := strings.Cut(q.Values.Get("source"), ":")
	if !ok {
		err = xrpc.Invalid("parameter source is %q; it must be a collection and a path, as in app.bsky.feed.like:subject.uri", language.Brief(q.Values.Get("source")))
	}
	return collection, path, err
}

func missing(name string) error { return xrpc.Invalid("parameter %q is missing", name) }

// open opens the parameter cursor: the place of a record, with another number.
func open(q *xrpc.Query, question string) (x, y uint64, p ask.Path, err error) {
	at, rkey, err := q.Cursors.Open(question, q.Values.Get("cursor"))
	if err != nil || len(at) != 2 {
		return 0, 0, p, xrpc.ErrCursor
	}
	return at[0], at[1], ask.ParsePath(rkey), nil
}

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
