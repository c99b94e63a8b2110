// Package export writes a store as lines of JSON, in a form that depends neither on its
// engine nor on its ids (export.go), and fills an empty store from them (import.go). An
// export holds what is known, and not how it came about: replays behind its cursors are
// recognized after an import as before.
package export
