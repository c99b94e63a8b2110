// Package labels subscribes to labelers (com.atproto.label.subscribeLabels,
// https://atproto.com/specs/label) and writes their labels to the graph.
//
// A Consumer has a goroutine for each labeler (labeler.go), which connects, decodes (decode.go), verifies
// (verify.go) each label with the key in the labeler's DID document, and writes what it has read together with the
// labeler's cursor (package graph, labels.go). A label that arrives
// again changes nothing.
//
// Labelers are untrusted. A labeler that is down, slow or sends invalid data does not delay the others: its
// goroutine waits, and tries again. The labelers take turns (Consumer.takeTurn), so that a labeler that
// sends as fast as it can takes no more than a share of the processor and of the store's writes.
package labels
