// Package read is typed reads of a store: functions over a kv.Reader that return what its
// rows mean. They read one state, that of the reader, and keep nothing; a reader is used by
// one goroutine at a time.
//
//	header.go   the header of the store, and the state of an account
//	records.go  the records of actors, bucket by bucket
//	sets.go     reverse sets: rows, and the containers below them
//	counts.go   totals, cursors, versions
//	notes.go    dead letters and gaps
//
// Nothing is written, cached or counted here, and no set is combined with another.
package read
