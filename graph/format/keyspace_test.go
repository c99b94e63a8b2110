package format

import (
	"bytes"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
)

// TestParts: every keyspace is listed once, as a part of the store or with the rest.
func TestParts(t *testing.T) {
	parts, rest := Parts(kinds.BuiltIn)
	seen := map[byte]int{}
	names := map[string]bool{}
	for i, p := range parts {
		if names[p.Name] {
			t.Errorf("two parts have the name %q", p.Name)
		}
		names[p.Name] = true
		seen[p.Prefix[0]]++
		for _, q := range parts[:i] {
			if bytes.HasPrefix(p.Prefix, q.Prefix) || bytes.HasPrefix(q.Prefix, p.Prefix) {
				t.Errorf("%s and %s overlap: %x, %x", p.Name, q.Name, p.Prefix, q.Prefix)
			}
		}
	}
	for _, k := range rest {
		if seen[k] > 0 {
			t.Errorf("%#x is listed as a part and with the rest", k)
		}
		seen[k]++
	}
	for first := range 256 {
		known := KeyspaceOf([]byte{byte(first), 0}) != "unknown"
		if known != (seen[byte(first)] > 0) {
			t.Errorf("%#x is a keyspace: %v, and listed %d times", first, known, seen[byte(first)])
		}
	}
	if KeyspaceOf(nil) != "unknown" || seen[0xff] != 0 {
		t.Error("an empty key, or 0xff, has a keyspace")
	}
	// Each golden key belongs to exactly one part, or to the rest.
	for _, f := range goldenKeys() {
		n := 0
		for _, p := range parts {
			if bytes.HasPrefix(f.Bytes, p.Prefix) {
				n++
			}
		}
		if isRest := slices.Contains(rest, f.Bytes[0]); isRest == (n > 0) || n > 1 {
			t.Errorf("%s belongs to %d parts: %x", f.Name, n, f.Bytes)
		}
	}
}
