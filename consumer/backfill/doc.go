// Package backfill fetches the past of repos, and what was missed of them: repos are
// fetched whole from where their accounts live, and put in the place of what the index
// has (graph.RepoSnapshot), while the stream goes on.
//
// What is to be fetched is a queue in the store (format.Resync). The graph puts a repo
// there when something of it was missed; a list of a host's repos does (list.go), and an
// operator. The queue is worked off by so many fetchers (queue.go, fetch.go), each host
// within its own limits (hosts.go), and what was fetched is applied many repos at a time
// (place.go). What fails is tried again, later and later, and given up in the end, with
// the reason, in the same row.
//
// Addresses come from strangers: documents of DIDs name the hosts. What is connected to,
// and how much is read from it, is bounded (http.go).
//
// A Manager's methods may be called from any goroutine.
package backfill
