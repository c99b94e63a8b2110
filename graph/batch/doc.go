// Package batch holds what the index applies in one go: decoded events of the stream, and
// pieces of the past (snapshots of repos, rows of an archive, an export). Decoders fill a
// Batch; graph.Store applies it. The package is pure: it knows no store and no engine.
package batch
