package format

import (
	"bytes"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
)

// Every keyspace is listed once: as a part of the store, or with the rest.
func TestParts(t *testing.T) {
	parts, rest := Parts(kinds.BuiltIn)
	seen := map[byte]int{}
	names := map[string]bool{}
	for i, p := range parts {
		if names[p.Name] {
			t.Errorf("two parts are called %q", p.Name)
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
			t.Errorf("%#x is listed as a part, and as the rest", k)
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
		t.Error("no key is of a keyspace")
	}
	// Each golden key of the sets and the records is of exactly one part.
	for _, f := range goldenKeys() {
		n := 0
		for _, p := range parts {
			if bytes.HasPrefix(f.Bytes, p.Prefix) {
				n++
			}
		}
		if isRest := slices.Contains(rest, f.Bytes[0]); isRest == (n > 0) || n > 1 {
			t.Errorf("%s is of %d parts: %x", f.Name, n, f.Bytes)
		}
	}
}
