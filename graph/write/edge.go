package write

import (
	"cmp"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// edge identifies an edge that some record starts or stops naming.
type edge struct {
	kind kinds.Kind
	// date is that of the record that starts naming it: format.Undated if several do. It does not identify the edge.
	date uint32

	// tid is that of a removed edge's record, or of one of them; 0 if its key is not a TID. It does not identify
	// the edge.
	tid uint64

	actor   dict.ID
	subject dict.ID
}

func compareEdges(x, y edge) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.actor, y.actor), cmp.Compare(x.subject, y.subject))
}

func sameActor(x, y edge) bool { return x.kind == y.kind && x.actor == y.actor }

// metered ends reads, with ErrFar, once they have read more than so many bytes.
type metered struct {
	kv.Reader

	left int
}

// Get implements kv.Reader.
func (m *metered) Get(key []byte) (v []byte, ok bool, err error) {
	v, ok, err = m.Reader.Get(key)
	if m.left -= len(key) + len(v); err == nil && m.left < 0 {
		err = ErrFar
	}
	return v, ok, err
}

// Scan implements kv.Reader.
func (m *metered) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	return m.Reader.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		if m.left -= len(k) + len(v); m.left < 0 {
			return false, ErrFar
		}
		return each(k, v)
	})
}
