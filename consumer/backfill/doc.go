// Package backfill fetches the history of repos, and repairs repos with missed events:
// it fetches each repo whole from its host, and replaces what the index has of it
// (graph/batch.Snapshot), while the stream goes on.
//
// The repos to fetch are a queue in the store (graph.Resync). The graph queues a repo
// when it missed an event of it; so do lists of hosts (list.go), comparisons with the
// relay's list (compare.go), and operators. A bounded number of fetchers works on the
// queue (backfill.go, fetch.go), each host within its own limits (scheduler.go), and one
// write puts many fetched repos in place (place.go). Failed repos are retried, later and
// later, and given up in the end (outcome.go); the queue row keeps the reason.
//
// DID documents, which strangers write, name the hosts. So the package restricts the
// addresses that it connects to, and bounds what it reads from them (client.go). With
// Options.Verifier, it verifies signatures.
//
// Any goroutine may call a Manager's methods.
package backfill
