// Package labels reads what labelers say of accounts and records, by
// com.atproto.label.subscribeLabels (https://atproto.com/specs/label), and writes it to the graph.
//
// A Consumer has a goroutine for each labeler (labeler.go), which connects, decodes (decode.go), verifies
// each label by the key in the labeler's DID document, and writes what it has read together with the
// labeler's cursor (package graph, labels.go). It reads no label twice unless the labeler sends it twice;
// a label that comes again changes nothing.
//
// Labelers are strangers' servers. One that is down, slow, or sends what it should not, delays nobody: its
// goroutine waits, and tries again. All labelers together take turns (Consumer.takeTurn), so that a labeler that
// sends as fast as it can takes no more than a share of the processor and of the store's writes.
package labels
