// Package relay is a relay for tests and load: it serves com.atproto.sync.subscribeRepos,
// with cursor replay.
//
// It has two Streams of messages, which package synth serves to a subscriber (the demo has a third).
// Recorded (recorded.go) serves given messages, and misbehaves as tests need. Simulated (simulated.go,
// encode.go, full.go, faults.go) serves a generated network (package network), at a set rate or as fast as
// it is read, with the faults of real relays on request. Hosts (hosts.go) are the PDSes of that network,
// and Archive (archive.go) is its archive.
package relay
