// Package read has typed reads of a store: functions over a kv.Reader that decode its rows.
// They read the one state of the reader and keep nothing. Only one goroutine at a time may
// use a reader.
//
//	header.go   the header of the store, and the state of an account
//	records.go  the records of actors: heads, and the leaves below them
//	sets.go     reverse sets: rows, and the leaves below them
//	counts.go   totals, cursors, versions
//	notes.go    dead letters and gaps
//
// It does not write, cache or count, and does not combine sets.
package read
