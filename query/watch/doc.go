// Package watch notifies subscribers when accounts or records enter or leave a set.
//
// The writer reports which members may have changed ([Watcher.Changed]). Twice a second a
// round compares two states of the store, the one of the last round and the current one, and
// sends each expression's subscribers the members that entered and left. Every change is
// sent once, and none is missed. Clients take turns, so that expensive subscriptions of one
// do not delay another's.
package watch
