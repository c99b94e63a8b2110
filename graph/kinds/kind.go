// Package kinds is the table of what is indexed: each kind of edge is one row of
// All. The decoder, the store, the queries, the metrics, the simulated network and
// the models of the tests take their kinds from it.
//
// A kind is added by adding a row, with a number that was never used before. What a
// store lacks of it, having been made before, is recorded as a gap when it is opened
// (graph.Open). The table is read only, from any goroutine.
package kinds

import (
	"fmt"

	"skein/intern/dict"
)

// A Kind is a kind of edge: one collection of records. Its value is in the store.
type Kind uint8

// An End is one of the two ends of an edge.
type End struct {
	// Is says what stands there: a DID or an AT URI.
	Is dict.Namespace
	// Field is the path to it in the record. nil means the account whose record it
	// is.
	Field []string
}

// IsAuthor reports whether the end is the account whose record it is.
func (e End) IsAuthor() bool { return e.Field == nil }

// Author is the end that is the account whose record it is.
var Author = End{Is: dict.DID}

// did and uri are ends that the record names.
func did(field ...string) End { return End{dict.DID, field} }
func uri(field ...string) End { return End{dict.URI, field} }

// Info is a row of the table of kinds.
type Info struct {
	Kind       Kind
	Name       string // in stats and metrics
	Collection string // the NSID of the records
	From, To   End    // what the edge goes from and to
	Forward    string // the query operator from From to the set of To
	Reverse    string // the query operator from To to the set of From
	// Known says that it is worth telling who of the people somebody follows has such an
	// edge to a subject (the method known).
	Known bool
}

// All is the one table of what is indexed. A Kind's number is never used again.
//
// The record map and the sets take edges that begin at the author of the record; a
// kind that begins elsewhere, as a list's members do, needs a second look-up that is
// not there yet: TestTable refuses its row.
var All = []Info{
	{1, "follow", "app.bsky.graph.follow", Author, did("subject"), "follows", "followers", true},
	{2, "like", "app.bsky.feed.like", Author, uri("subject", "uri"), "likes", "likers", true},
	{3, "repost", "app.bsky.feed.repost", Author, uri("subject", "uri"), "reposts", "reposters", true},
	{4, "block", "app.bsky.graph.block", Author, did("subject"), "blocks", "blockers", false},
	{5, "listblock", "app.bsky.graph.listblock", Author, uri("subject"), "listblocks", "listblockers", false},
}

// Hidden is the kind under which the set of hidden accounts is kept.
const Hidden Kind = 0

// Max bounds tables by Kind.
const Max = 255

var byKind = func() (t [Max + 1]*Info) {
	for i := range All {
		t[All[i].Kind] = &All[i]
	}
	return t
}()

// Info returns the kind's row, nil if there is none.
func (k Kind) Info() *Info { return byKind[k] }

// String returns the kind's name, as in metrics.
func (k Kind) String() string {
	if i := k.Info(); i != nil {
		return i.Name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ByName returns the row of a kind by its name, nil if there is none.
func ByName(name string) *Info {
	for i := range All {
		if All[i].Name == name {
			return &All[i]
		}
	}
	return nil
}
