// Package graph keeps the edges of the network: the record map, the sets in both
// directions, the accounts and the cursors, all changed in one atomic write per batch. It
// does not know how events arrive or how questions are written; strings become ids through
// package intern. What is true of it is written in docs/semantics.md.
//
// The rooms beside it:
//
//	kinds    what is indexed: one table
//	format   the bytes on disk, as pure functions
//	read     typed reads of a store, over a reader of its engine
//	check    the proof that a store is whole, and what it takes
//	fence    which process writes which partitions
//	export   the store as lines of JSON, and back
//	upgrade  a store of an older format, brought up to date
//
// Here are the Store (store.go, open.go), the write path and the read path.
//
// A write: Apply (apply.go) hands a Batch (batch.go) to a lane (lane.go), which divides it
// into segments (segment.go); each is one write (write.go), made in phases, one file each:
// accounts, events, previous, edges, records, notes. What has grown too large is spilled
// afterwards (spill.go, told by merger.go). What a store that several processes write does
// differently is behind one interface (writers.go: alone; several.go).
//
// A question: View hands out a Snapshot (read.go, snapshot.go) and the sets of who has an
// edge to something (set.go, with the cache of large ones).
//
// Apply, EraseSlice and the cursor methods are for one goroutine, the writer; View and all
// reading for any. There is no history: of what was deleted nothing is left.
package graph
