// Package watch notifies subscribers when accounts or records enter or leave a set.
//
// The writer reports which members may have changed ([Watcher.Changed]). Twice a second a
// round compares two states of the store, the one of the last round and the current one, and
// sends each expression's subscribers the members that entered and left. Every change is
// sent once, and none is missed. If the changes cost too much to compute, the subscribers
// receive a reset instead, and must query the set again. Clients take turns, so that expensive
// subscriptions of one do not delay another's.
//
// index.go maps changes to expressions, rounds.go runs the rounds, state.go reads a state of
// the store, and turns.go divides a round among the clients. The package knows nothing of HTTP:
// package query serves the messages. docs/asking.md#subscriptions describes them for users.
package watch
