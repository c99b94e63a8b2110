// Package graph keeps the edges of the network: the records, the sets in both directions,
// the accounts and the cursors, all changed in one atomic write per batch. It does not know
// how events arrive or how questions are phrased. Package intern turns strings into ids.
// docs/semantics.md states what the index guarantees.
//
// The packages beside it:
//
//	kinds    what is indexed, as one table
//	format   the bytes on disk, as pure functions
//	batch    what is applied in one go
//	write    the phases of one write, without the Store
//	ask      reads of one state, without the Store
//	read     typed reads over an engine's reader
//	check    proves that a store is whole
//	export   a store as lines of JSON, and back
//
// This package has the Store: it opens one (open.go), applies batches (apply.go, lane.go),
// erases deleted accounts (erase.go), spills large values (spill.go), and tracks cursors,
// holes of the stream and the backfill. labels.go writes what labelers say; it does not come
// with the stream.
//
// A lane applies the events of a range of partitions. Apply divides a batch into segments,
// and package write makes one write of each. several.go holds what differs
// between a store with one writing process and a store with several; claim.go decides which
// process writes which partitions.
//
// Every method of a Store may be called from any goroutine. Writes wait for each other;
// reads wait for nothing.
//
// Locks, in the order in which they are taken: Store.writing, then Store.status. Nothing
// else is locked under them.
//
// The store keeps no history: deleted records leave nothing behind.
package graph
