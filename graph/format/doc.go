// Package format defines the bytes on disk: the keys and values of a store, and how merged
// values fold into one. It has pure functions only, and knows no engine, context or metric.
// Any goroutine may call them; a Folder is for one goroutine at a time. The dictionary lies in
// the same store; its keyspaces are package dict's.
//
// The format of a whole store has one version (version.go), which its Header names (header.go).
//
// The first byte of a key names the keyspace; ids are written by dict.AppendID, other
// numbers big-endian.
//
//	'r' kind actor bucket(2)     → chunk          the records (chunk.go, packed.go)
//	'r' kind actor bucket(2) n×1 → chunk          what a chunk spilled
//	'v' kind subject             → row            the actors with an edge to subject (row.go); not of the kinds with groups
//	'o' kind subject, first of a group → rows     of neighbouring posts (rowgroup.go)
//	'v' kind subject block       → container      what a row spilled (container.go)
//	'v' 0 0 …                    → row, containers  the hidden accounts
//	'k' kind subject block       → dates          of the members in containers (dates.go)
//	'a' actor, first of a group  → repo states    (account.go)
//	'e' actor                    → resume key     accounts being erased
//	'c' source                   → cursor row     (cursor.go)
//	'd' source-number(4) seq(8) path → dead letter, JSON (note.go)
//	'g' source-number(4) seq(8) reason … → gap, JSON
//	'm' "graph"                  → Header         (header.go)
//	'm' "counts"                 → Counts, JSON   (counts.go)
//	'm' "hidden"                 → version of the hidden set (8)
//	'm' "hiding" version(1)      → Hiding, JSON   (hiding.go)
//	'm' "holes"                  → Holes, JSON    (holes.go)
//	'm' "kinds"                  → configured kinds, JSON (kinds.go)
//	'm' "lacking"                → a Lack by the name of each late kind, JSON (resync.go)
//	'm' "import"                 → nothing        while an import is not finished
//	'm' "secret"                 → 32 random bytes, for opaque query cursors
//	'm' "writer"                 → token of the last write (16)
//	'm' "backfill"               → Backfill, JSON (resync.go)
//	'w' actor                    → Resync, JSON   the queue of repos to fetch (resync.go)
//	'b' …                        → labels, and how far each labeler is read (labels.go)
//	't' actor …                  → rev, commit    changes by the stream to repos that are queued (resync.go)
//
// In a store with several writers (dict.Settings.Partitions), a value that a write reads
// and changes belongs to one partition, so that two writers never conflict on it. There are no row groups, and some keys
// are longer; their lengths distinguish the two layouts (layout.go):
//
//	'v' kind subject part        → row            the members of one partition
//	'v' kind subject 0xff block  → container      a block's ids are of one partition
//	'a' actor                    → repo state, a group of one
//	'c' 0 part source            → cursor row
//	'm' "counts", "hidden", "hiding", "writer", "backfill", "holes", each followed by the first
//	                               partition of the lane that writes it; totals are sums
//	'd', 'g'                       the source's number has that partition in its first byte
//	'p' part                     → claim, JSON    the process that indexes it (claim.go)
//	'q' token(16)                → heartbeat      of a claim
//
// 'r' finds the subject of a deleted record, and is the forward set. 'v' is the reverse set.
// Writes add merge operands to both without reading them. Nearly every value is small. One
// that has grown too large is spilled: its content moves to finer keys below it, and later
// changes still go into it and override the values below. So a change touches one small
// value, whatever the size of the set, and a reader needs no list of the large ones.
//
// testdata has bytes of every form. Programs that write or read other bytes have another Version.
package format
