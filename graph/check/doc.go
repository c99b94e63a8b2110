// Package check proves that a store is whole: it reads all of it and reports every invariant
// that does not hold. skein check and the tests use it.
//
//	check.go       the order of the checks; accounts, totals, keyspaces
//	edges.go       the records and the sets hold the same edges, in their one form
//	dictionary.go  the dictionary is one to one, in leased blocks
//	damaged.go     a reader that goes on behind what is damaged on disk
//	usage.go       where the bytes of a store are
//
// It works on a kv.Reader, needs no Store, and writes nothing. A check is for one goroutine.
package check
