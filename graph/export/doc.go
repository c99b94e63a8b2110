// Package export writes a store as lines of JSON that depend neither on its engine nor on its
// ids (export.go), and fills an empty store from them (import.go). An export has the state of
// a store, not its history. After an import, events up to the cursors still count as replays.
//
// It also writes a store as Parquet files, for analysis with SQL and data frames (tables.go); nothing
// reads these back.
package export
