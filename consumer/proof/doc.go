// Package proof checks that an account made what a message of the firehose says: that the
// account's key signed the commit (Signature), and that the operations lead from the tree of the
// commit before to the tree of this one (Checker.Invert).
//
// The second check is the inversion of Sync 1.1 (https://atproto.com/specs/sync): a commit comes
// with the nodes of its tree (the MST) that the operations touch. Undoing the operations on these
// nodes must give the root that prevData names. So a relay can neither leave out an operation nor
// make one up, although it sends only a few nodes.
//
// indigo's verifier (atproto/repo) is the oracle of the tests.
package proof
