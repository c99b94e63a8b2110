// Package write applies a segment of a batch in one atomic write, in phases. It does not
// depend on package graph: the caller opens the transaction, keeps the counts and cursors, and
// decides when to retry.
//
// A Writer runs the phases in this order, one file each:
//
//	accounts  reads the states of the segment's accounts
//	resyncs   reads the accounts' rows in the queue of repos to fetch, and the stream's
//	          changes noted since they were queued
//	events    walks the events: drops replays, changes states, keeps the last change of
//	          each path; placing.go has the part for snapshots of repos and rows of an archive
//	previous  reads what the changed paths held before
//	edges     decides which members the sets gain and lose
//	records   writes the records; then edges, accounts and resyncs write what they decided
//	notes     writes dead letters and gaps
//
// A transaction's reads do not see its own writes, so the phases decide everything before they
// write. (Splitting an oversized chunk still reads while writing: see mergeRecords in spill.go.)
//
// A Merger folds what the phases merge, and remembers which values have grown too large;
// SpillOne splits such a value into smaller ones under longer keys. StateCache keeps states of
// accounts between writes.
package write
