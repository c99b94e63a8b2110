package ask

import (
	"bytes"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
)

// More words of questions: types of the format that a View returns, under names of this package.
type (
	// RepoState is what is known of an account's repo, with Flags.
	RepoState = format.RepoState
	// Resync is a row of the queue of repos to fetch.
	Resync = format.Resync
	// Roster is a list of all accounts.
	Roster = format.Roster
	// Around is the part of the network that a store holds.
	Around = format.Around
	// Counts are the totals of a store.
	Counts = format.Counts
	// Cursor is how far a source has been read.
	Cursor = format.Cursor
	// LabelEntry is what a labeler says.
	LabelEntry = format.LabelEntry
	// Labeler is how far a labeler has been read.
	Labeler = format.Labeler
)

// Flags of a RepoState, the State of a repo that was given up, the Problem of a labeler that was
// removed, and the Source of a Roster that the stream gave.
const (
	FlagHasRev     = format.FlagHasRev
	FlagHidden     = format.FlagHidden
	FlagPartial    = format.FlagPartial
	FlagDesync     = format.FlagDesync
	FlagReturned   = format.FlagReturned
	FlagResync     = format.FlagResync
	FlagNoRoot     = format.FlagNoRoot
	ResyncFailed   = format.ResyncFailed
	ResyncInactive = format.ResyncInactive
	LabelerRemoved = format.LabelerRemoved
	RosterStream   = format.RosterStream
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
