// Package intern maps DIDs and AT URIs to uint64 ids and back. Every string has one id,
// forever, whatever the number of writers and crashes. It does not know the use of the ids;
// package dict defines the bytes of ids and strings.
//
//	read.go    Lookup and Strings: reading
//	draw.go    Drawer: ids for new strings within the transaction that uses them
//	claim.go   Claimer: ids for new strings in earlier transactions, for several writers
//	batch.go   the strings of many events, each once
//	lease.go   blocks of ids, leased from random shards
//	alloc.go, checkout.go   the ids of leased blocks that are checked out, or come back
//	cache.go, bloom.go      answers without reading the store
//
// Ids come from random shards in leased blocks: in one small transaction, a writer takes an
// aligned block of 65,536 ids (one container of a Roaring bitmap) from a random shard. It then hands out
// the ids from memory. So writers contend 65,536 times less often than if they drew single
// ids, and the ids of a block fill one container. docs/decisions/0002 has the measurements.
//
// A Drawer is for the writer's goroutine only. Any goroutine may use a Claimer, and read.
package intern
