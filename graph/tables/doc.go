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
// Ids are numbers from 0 on, without gaps, and belong to this export: an account's id is its row in
// accounts, and a URI's its row in uris. The actor of an edge is an account, and so is the subject
// if the kind's records name accounts (follow, block); else it is a URI (like, repost).
//
// An edge is a record. Records of inactive accounts (deactivated, deleted, taken down) are left out,
// and so are records that name an inactive account, just as the index leaves them out of its
// answers. An account can have two records that name the same subject: where a set is meant, use
// DISTINCT.
//
// A record's key is a TID, nearly always: the time at which a client made it, to the microsecond,
// and the number of that client's clock. These are the columns time and clock; rkey is null then.
// Of any other key, rkey has the text, and time and clock are null. A URI is stored likewise:
// author, collection and key, or, if that is not its form, as the text uri. The function tid in
// views.sql makes the key of time and clock.
//
// Edges are sorted by actor, and those of one actor by time, in buckets of 12.7 days, with other
// keys at the end. Row groups have a million rows. Columns are compressed with zstd, and have
// statistics.
package tables
