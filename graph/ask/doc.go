// Package ask reads one state of the graph: sets in both directions, the records behind edges,
// lists, accounts, and what is missing. It does not know the Store, nor how questions are
// phrased.
//
// A Source has what all views of a store share, among it the cache of large sets. A View is one
// state, for one goroutine and one question.
package ask
