// Package check verifies a store: it reads all of it and reports every violated invariant.
// skein check and the tests use it. It does not repair anything.
//
//	check.go       the order of the checks; accounts, totals, keyspaces
//	edges.go       the records and the sets have the same edges; the form of the records
//	sets.go        the form of rows, row groups and leaves; the hidden set
//	dictionary.go  the dictionary is one to one, in leased blocks
//	damaged.go     a reader that continues after damaged parts of the disk
//	usage.go       the bytes of each part of a store
//
// It reads a kv.Reader, needs no Store, and never writes to the store. It has several goroutines if the engine can read one
// state from several (kv.Forker). dateCheck and labelCheck only divide the methods of checker: a type has at most 30.
package check
