package format

import (
	"bytes"
	"testing"

	"skein.blue/graph/kinds"
)

// TestParts: parts have names and keys of their own.
func TestParts(t *testing.T) {
	parts := Parts(kinds.BuiltIn)
	names := map[string]bool{}
	for i, p := range parts {
		if names[p.Name] {
			t.Errorf("two parts have the name %q", p.Name)
		}
		names[p.Name] = true
		for _, q := range parts[:i] {
			if bytes.HasPrefix(p.Prefix, q.Prefix) || bytes.HasPrefix(q.Prefix, p.Prefix) {
				t.Errorf("%s and %s overlap: %x, %x", p.Name, q.Name, p.Prefix, q.Prefix)
			}
		}
	}
	if KeyspaceOf(nil) != "unknown" || KeyspaceOf([]byte{0xff}) != "unknown" {
		t.Error("an empty key, or 0xff, has a keyspace")
	}
	// Each golden key is in a keyspace, and belongs to one part at most.
	for _, f := range goldenKeys() {
		n := 0
		for _, p := range parts {
			if bytes.HasPrefix(f.Bytes, p.Prefix) {
				n++
			}
		}
		if KeyspaceOf(f.Bytes) == "unknown" || n > 1 {
			t.Errorf("%s belongs to %d parts: %x", f.Name, n, f.Bytes)
		}
	}
}
