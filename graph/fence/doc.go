// Package fence decides which process writes which partitions of a store. A writer takes a
// Claim of its partitions, and every write reads it, so a writer stops writing once another
// takes over its partitions. A live writer renews its heartbeat, in a row that writes do not
// read. The package does not know the content of partitions.
//
// To learn whether the owner of an old claim is alive, a writer watches its heartbeat for a
// while, and does not compare clocks. Silence counts only while our own reads succeed in time:
// if the store stalls, a healthy writer is silent, too. So watching starts again after a
// stall, and the write that takes over checks the heartbeat once more.
//
// Any goroutine may use a Claim.
package fence
