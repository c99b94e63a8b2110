// Package intern turns DIDs and AT URIs into uint64s and back: one id per string for ever,
// whatever the number of writers and of crashes. It does not know what the ids are used for;
// how they and the strings lie in the store is package dict's.
//
//	read.go    Lookup and Strings: reading, for anybody
//	draw.go    Drawer: ids for new strings within the transaction that uses them
//	claim.go   Claimer: ids for new strings in transactions before, for several writers
//	batch.go   the strings of many events, each once
//	lease.go   blocks of ids, leased from random shards ahead of need
//	alloc.go, checkout.go   which ids of the leased blocks go out, and come back
//	cache.go, bloom.go      what is known without asking the store
//	audit.go   what became of every id, and how many are left
//
// Ids are drawn from random shards in leased blocks: a writer takes an aligned block of a
// container's worth (65,536) from a shard that it drew at random, in one small transaction,
// and hands the ids out from memory. Writers thus contend 65,536 times less than one that
// draws single ids, and the ids of a block fill one Roaring container. What was measured is
// in docs/decisions/0002.
//
// A Drawer is for one goroutine, the writer's; a Claimer and all reading for any.
package intern
