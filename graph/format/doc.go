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
//	'r' kind actor               → head           the records, or the newest changes to them (chunk.go, packed.go)
//	'r' kind actor last path     → leaf           what a head spilled
//	'v' kind subject part?       → row            the actors with an edge to subject (row.go); not of the kinds with groups
//	'o' kind subject, first of a group, part? → rows of neighbouring posts (rowgroup.go)
//	'v' kind subject 0xff part? last member → leaf what a row spilled (layout.go)
//	'v' 0 0 …                    → row, leaves    the hidden accounts
//	'a' actor, first of a group  → repo states    (account.go)
//	'e' actor                    → resume key     accounts being erased
//	'c' part source              → cursor row     (cursor.go)
//	'd' source-number(4) seq(8) path → dead letter, JSON (note.go)
//	'g' source-number(4) seq(8) reason … → gap, JSON
//	'm' "graph"                  → Header         (header.go)
//	'm' "counts" part            → Counts, JSON   (counts.go); totals are sums
//	'm' "hidden" part            → version of the hidden set (8)
//	'm' "hiding" part version(1) → Hiding, JSON   (hiding.go)
//	'm' "holes" part offset(4)   → piece of Holes, JSON (holes.go)
//	'm' "writer" part            → token of the last write (16)
//	'm' "backfill" part offset(4) → piece of Backfill, JSON (resync.go)
//	'm' "kinds"                  → configured kinds, JSON (kinds.go)
//	'm' "lacking"                → a Lack by the name of each late kind, JSON (resync.go)
//	'm' "import"                 → nothing        while an import is not finished
//	'm' "secret"                 → 32 random bytes, for opaque query cursors
//	'm' "watch " name            → what was sent of a watch of --watches, JSON (internal/app, lasting.go)
//	'm' "seen " day(4) slot(2)   → marks of 4 bytes: what viewers of feeds have seen (query/feed, seen.go)
//	'w' actor                    → Resync, JSON   the queue of repos to fetch (resync.go)
//	'b' …                        → labels, and how far each labeler is read (labels.go)
//	't' actor …                  → rev, commit    changes by the stream to repos that are queued (resync.go)
//
//	'p' token(16)                → claim, JSON    the partitions that a process indexes (claim.go)
//	'q' token(16)                → heartbeat      of a claim
//
// A store has one partition, or, for several writers, many (dict.Settings.Partitions). A value that a write reads
// and changes belongs to one partition, so that two writers never conflict on it: "part?" is the partition of the members, and missing
// if there is one. The rows under 'm' are those of the lane that begins with this partition; likewise the source's number in the keys of
// 'd' and 'g' has it in its first byte.
//
// 'r' finds the subject of a deleted record, and is the forward set. 'v' is the reverse set.
// Writes add merge operands to both without reading them. Nearly every value is small. One
// that has grown too large is spilled: its content moves to leaves below it, and later
// changes still go into it and override the leaves, until the next spill. Leaves divide the paths, or the members, among themselves, as those of a B-tree
// do, and have a bounded size. So a change touches one small
// value, whatever the size of the set, and a reader needs no list of the large ones.
//
// testdata has bytes of every form. Programs that write or read other bytes have another Version.
package format
