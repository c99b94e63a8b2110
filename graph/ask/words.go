package ask

import (
	"bytes"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// More words of questions: types of the format that a View returns, under names of this package.
type (
	// Counts are the totals of a store.
	Counts = format.Counts
	// LabelEntry is what a labeler says.
	LabelEntry = format.LabelEntry
)

// ComparePaths orders the paths of an actor's records.
func ComparePaths(x, y Path) int { return format.ComparePaths(x, y) }

// TIDOf returns the record key of an AT URI as a TID, Timeless if it names no time, or s is another string.
func TIDOf[S ~string | ~[]byte](is dict.Namespace, s S) uint64 {
	if b := []byte(s); is == dict.URI && bytes.HasPrefix(b, []byte("at://")) {
		if p := ParsePath(b[bytes.LastIndexByte(b, '/')+1:]); p.HasTime() {
			return p.TID
		}
	}
	return Timeless
}
