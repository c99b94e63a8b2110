package harness

// Attacks: tests named TestAbuse… next to the attacked code; docs/trust.md lists them with the bounds
// that they prove. Without the flag an attack runs for a second or two, in go test ./..., and counts
// work (bytes, look-ups, slots held), which does not depend on the machine. With the flag (make
// abuse) it runs at the size in docs/trust.md and prints its figures.

import (
	"flag"
	"testing"
)

var full = flag.Bool("abuse", false, "run attacks at full size, and print their figures: make abuse")

// Full reports whether attacks run at the size in docs/trust.md.
func Full() bool { return *full }

// Size returns small, or large if attacks run at full size.
func Size(small, large int) int {
	if *full {
		return large
	}
	return small
}

// Figure prints a figure of an attack in the form that make abuse collects: the name of
// the test, what was measured, and the value with its unit.
func Figure(t testing.TB, what, format string, args ...any) {
	t.Helper()
	t.Logf("abuse: %s: "+format, append([]any{what}, args...)...)
}
