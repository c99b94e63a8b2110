package read

import (
	"testing"

	"skein.blue/graph/format"
)

// A window that two windows make includes a record if and only if both do. None of the ends of the
// windows here may be lost, and the empty window must not become the zero Window, which includes all.
func TestWindowsTogether(t *testing.T) {
	windows := []Window{{}, {format.EndOfTime, format.EndOfTime}, {0, format.EndOfTime}, {0, 1}, {1, 3}, {2, 5}, {3, 4}, {5, format.EndOfTime}}
	paths := []format.Path{{Raw: []byte("self")}, {TID: format.EndOfTime}}
	for tid := range uint64(7) {
		paths = append(paths, format.Path{TID: tid})
	}
	for _, a := range windows {
		for _, b := range windows {
			for _, p := range paths {
				if got, want := a.And(b).Has(p), a.Has(p) && b.Has(p); got != want {
					t.Errorf("%v and %v = %v: includes %v: %t, want %t", a, b, a.And(b), p, got, want)
				}
			}
		}
	}
}
