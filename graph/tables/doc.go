// Package tables writes a store as Parquet files, for analysis with SQL and data frames.
//
// The folder that Write fills has
//
//	accounts/*.parquet      id, did, known, active, complete
//	uris/*.parquet          id, author, collection, time, clock, uri
//	edges/KIND/*.parquet    actor, subject, time, clock, rkey
//	views.sql               views and functions for DuckDB
//	manifest.json           a Manifest; it is written last
//
// An id is the number of a row, from 0 on, in this export: an account's id is its row in accounts, and
// a URI's its row in uris. It is not the store's id. The actor of an edge is an account, and so is the subject
// if the kind's records name accounts (follow, block); else it is a URI (like, repost).
//
// A row of edges is a record and one subject that it names. Records of inactive accounts (deactivated, deleted, taken down) are left out,
// and so are records that name an inactive account, just as the index leaves them out of its
// answers. An account can have two records that name the same subject: where a set is meant, use
// DISTINCT.
//
// Nearly every record key is a TID: a time in microseconds, which the client claims, and the number of
// a clock. These are the columns time and clock; rkey is null then.
// Any other key is text in rkey; time and clock are null then. The URI of a record in one of the collections that package
// dict packs, with a TID as its key, has author, collection, time and clock; any other URI, and the text that a record of
// another kind names, is in the column uri. The function tid in views.sql makes the key of time and clock.
//
// Edges are sorted by actor, then by time; records whose key is not a TID come last. Row groups have a million rows. Columns are compressed with zstd, and have
// statistics.
package tables
