// Package write makes one atomic write out of a segment of a batch, in phases. It does not
// know the Store: the caller opens the transaction, keeps the counts and cursors, and
// decides when to try again.
//
// A Writer runs the phases in this order, one file each:
//
//	accounts  reads the states of the segment's accounts
//	resyncs   reads what is queued for a refetch, and what the stream changed meanwhile
//	events    walks the events: drops replays, changes states, keeps the last change of
//	          each path (placing: snapshots of repos, and rows of an archive)
//	previous  reads what the changed paths held before
//	edges     decides which members the sets gain and lose
//	records   writes the records; then edges, accounts and resyncs write what they decided
//	notes     writes dead letters and gaps
//
// Reads see the state before the write, so nothing is written before everything is decided.
//
// A Merger folds what the phases merge, and notes the values that have grown too large;
// SpillOne moves their content into finer values. StateCache keeps states of accounts
// between writes.
package write
