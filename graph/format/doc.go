// Package format is the bytes on disk: the keys and values of a store, and how values that
// were merged fold into one. It is pure functions, of their arguments alone: no engine, no
// context, no metric. All may be called from any goroutine, but for a Folder, which is for
// one at a time.
//
// The format has one number, Version; the Header of a store names it (header.go). The
// dictionary's keyspaces, in the same store, are package dict's.
//
// The first byte of a key names the keyspace; ids are written by dict.AppendID, other
// numbers big-endian.
//
//	'r' kind actor bucket(2)     → chunk          the records (chunk.go)
//	'r' kind actor bucket(2) n×1 → chunk          what a chunk spilled
//	'v' kind subject             → row            who has an edge to subject (row.go)
//	'v' kind subject block       → container      what a row spilled (container.go)
//	'v' 0 0 …                    → row, containers  the hidden accounts
//	'a' actor, first of a group  → repo states    (account.go)
//	'e' actor                    → resume key     accounts being erased
//	'c' source                   → cursor row     (cursor.go)
//	'd' source-number(4) seq(8) path → dead letter, JSON (note.go)
//	'g' source-number(4) seq(8) reason … → gap, JSON
//	'm' "graph"                  → Header         (header.go)
//	'm' "upgrade"                → how far package upgrade came
//	'm' "counts"                 → Counts, JSON   (counts.go)
//	'm' "hidden"                 → version of the hidden set (8)
//	'm' "import"                 → nothing        while an import is not finished
//	'm' "secret"                 → 32 random bytes, for opaque query cursors
//	'm' "writer"                 → token of the last write (16)
//	'm' "backfill"               → Backfill, JSON (resync.go)
//	'w' actor                    → Resync, JSON   repos to be fetched whole (resync.go)
//	't' actor …                  → rev, commit    what the stream changed of repos whose past is to come (resync.go)
//
// In a store that several processes write (dict.Settings.Partitions), nothing that is read
// to be written again belongs to two partitions, so that two writers never conflict on it.
// Some keys then are longer; their lengths tell the two layouts apart (layout.go):
//
//	'v' kind subject part        → row            the members of one partition
//	'v' kind subject 0xff block  → container      a block's ids are of one partition
//	'a' actor                    → repo state, a group of one
//	'c' 0 part source            → cursor row
//	'm' "counts", "hidden", "writer", "backfill", each followed by the first partition of
//	                               the lane that writes it; totals are sums
//	'd', 'g'                       the source's number has that in its first byte
//	'p' part                     → claim, JSON    who indexes it (claim.go)
//	'q' token(16)                → heartbeat      of a claim
//
// 'r' answers what a delete names, and is the forward set. 'v' is the reverse set. Both are
// written blind, by merge operands, into a value that is small for nearly every actor and
// subject. One that has grown too large is spilled: what it holds moves to finer keys under
// it, and it goes on as the place where changes land, which stand over what lies below. So
// a change touches one small value, whatever the size of the set, and whoever reads needs
// no list of what is large.
//
// testdata has bytes of every form; what is written today is read for ever, or brought up
// to date by package upgrade.
package format
