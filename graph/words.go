package graph

import (
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
)

// The parts of a store that a consumer reads and changes. Package format says how the store keeps it.
type (
	// A View reads one snapshot of the store.
	View = ask.View
	// A Window is a period of time.
	Window = ask.Window
	// A Cursor is the progress of a source.
	Cursor = format.Cursor
	// A RepoState is what the index knows about a repo.
	RepoState = format.RepoState
	// A Root is the beginning of the hash of a repo's tree.
	Root = format.Root
	// A Path names a record of an account and a kind.
	Path = format.Path
	// A Resync is a row of the queue of repos to fetch.
	Resync = format.Resync
	// Roster is format.Roster.
	Roster = format.Roster
	// Around is format.Around.
	Around = format.Around
	// A Backfill records what is being backfilled, and the progress.
	Backfill = format.Backfill
	// A HostBackfill is the progress of listing the repos of a host.
	HostBackfill = format.HostBackfill
	// A Labeler is the read state of a labeler.
	Labeler = format.Labeler
)

// Flags of a RepoState.
const (
	FlagHasRev   = format.FlagHasRev
	FlagHidden   = format.FlagHidden
	FlagPartial  = format.FlagPartial
	FlagDesync   = format.FlagDesync
	FlagResync   = format.FlagResync
	FlagNoRoot   = format.FlagNoRoot
	FlagReturned = format.FlagReturned
)

// States of a Resync, sources of a Roster, and texts in the store that have a meaning.
const (
	ResyncWaiting  = format.ResyncWaiting
	ResyncFailed   = format.ResyncFailed
	ResyncInactive = format.ResyncInactive

	RosterRepos   = format.RosterRepos
	RosterStream  = format.RosterStream
	RosterArchive = format.RosterArchive

	KindAdded      = format.KindAdded
	NeverHeard     = format.NeverHeard
	LabelerRemoved = format.LabelerRemoved
)

// LatestRev returns the highest rev that is believed at a time.
func LatestRev(now time.Time) format.Rev { return format.LatestRev(now) }
