// Package graph keeps the edges of the network: the record map, the sets in
// both directions, the accounts, and the cursor, all changed in one atomic
// write per batch. It does not know how events arrive or how questions are
// written; strings become ids through package intern.
//
// What is true of it is written in docs/SEMANTICS.md; how it lies on
// disk, in layout.go alone.
package graph

import (
	"fmt"

	"skein/intern/dict"
)

// A Kind is a kind of edge: one collection of records. Its value is in the
// store.
type Kind uint8

// KindInfo is a row of the table of kinds.
type KindInfo struct {
	Kind       Kind
	Name       string         // in stats and metrics
	Collection string         // the NSID of the records
	Subject    []string       // where the subject stands in the record
	SubjectIs  dict.Namespace // a DID or an AT URI
	Forward    string         // the query operator from the actor to the subjects
	Reverse    string         // the query operator from the subject to the actors
}

// Kinds is the one table of what is indexed. A row more is an edge kind more,
// and nothing else changes. A Kind's number is never used again.
var Kinds = []KindInfo{
	{1, "follow", "app.bsky.graph.follow", []string{"subject"}, dict.DID, "follows", "followers"},
	{2, "like", "app.bsky.feed.like", []string{"subject", "uri"}, dict.URI, "likes", "likers"},
	{3, "repost", "app.bsky.feed.repost", []string{"subject", "uri"}, dict.URI, "reposts", "reposters"},
	{4, "block", "app.bsky.graph.block", []string{"subject"}, dict.DID, "blocks", "blockers"},
}

// hiddenKind is the kind under which the set of hidden accounts is kept.
const hiddenKind Kind = 0

// maxKind bounds tables by Kind.
const maxKind = 255

var kindRows = func() (t [maxKind + 1]*KindInfo) {
	for i := range Kinds {
		t[Kinds[i].Kind] = &Kinds[i]
	}
	return t
}()

// Info returns the kind's row, nil if there is none.
func (k Kind) Info() *KindInfo { return kindRows[k] }

// String returns the kind's name, as in metrics.
func (k Kind) String() string {
	if i := k.Info(); i != nil {
		return i.Name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}
