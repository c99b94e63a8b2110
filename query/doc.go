// Package query serves the index over HTTP, as XRPC methods: set queries, rankings, counts,
// relationships, backlinks, feeds and subscriptions. It parses parameters, names accounts,
// pages results, says what may be missing from them, and limits what clients may cost.
//
// It reads the graph through [ask.View] and never writes. The set language is package
// algebra; sets that are watched as they change are package watch.
package query
