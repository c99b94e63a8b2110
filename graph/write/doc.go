// Package write applies a segment of a batch in one atomic write, in phases. It does not
// depend on package graph: the caller opens the transaction, keeps the counts and cursors, and
// decides when to retry.
//
// A Writer runs the phases in this order, one file each:
//
//	accounts  reads the states of the segment's accounts, their rows in the queue of repos to
//	          fetch, and what the stream changed in their repos since they were queued
//	events    walks the events: drops replays, changes the states and the queue, keeps the last
//	          change of each path; placing.go has the part for snapshots of repos and rows of an
//	          archive, queue.go the part for the queue
//	previous  reads what the changed paths held before
//	edges     decides which members the sets gain and lose
//	records   writes the records; then edges and accounts write what was decided
//
// A transaction's reads do not see its own writes, so the phases decide everything before they
// write. (Spilling an oversized chunk still reads while writing: see mergeRecords in spill.go.)
//
// Some words: a lane is some partitions with one writer.
// An actor is the id of the account that owns records. Accounts with adjacent ids share one value,
// a group. A hole is a gap in the stream in which any repo may have changed (format.Gap.Suspect).
// To place a snapshot is to replace the stored records in its range by its own.
//
// A Merger folds what the phases merge, and remembers which values have grown too large;
// SpillOne spills such a value: it moves the content to smaller values under longer keys. StateCache keeps states of
// accounts between writes.
package write
