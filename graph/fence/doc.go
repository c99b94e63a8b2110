// Package fence settles which process writes which partitions of a store. A writer takes a
// Claim of its partitions, and every write reads it: a writer whose partitions another took
// over writes nothing any more. Who is alive says so regularly, in a row that no write
// reads.
//
// Whether a writer that left its claim behind is alive is found out by watching its
// heartbeat for a while, and not by comparing clocks. Silence counts only while our own reads
// succeed in time: when the store stands still, a healthy writer is silent, too. So after a
// stall the watching begins again, and the write that takes over checks the heartbeat once more.
//
// A Claim may be used from any goroutine. Nothing here knows what the partitions hold.
package fence
