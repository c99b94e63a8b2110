package graph

import "skein.blue/graph/format"

// What callers of this package meet of package format.
type (
	// Seq is a relay's sequence number.
	Seq = format.Seq
	// Cursor says how far a source has been applied.
	Cursor = format.Cursor
	// Counts are the totals of the store.
	Counts = format.Counts
	// DeadLetter is a piece of input that was dropped.
	DeadLetter = format.DeadLetter
	// Gap is a place in the stream where something may be missing.
	Gap = format.Gap
)
