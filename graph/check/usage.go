package check

import (
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// Totals returns the counts, the cursors and the kinds of a store that no graph has open.
func Totals(r kv.Reader) (counts format.Counts, cursors []format.Cursor, table *kinds.Table, err error) {
	h, err := read.Header(r)
	if err != nil {
		return counts, nil, nil, err
	}
	if counts, err = read.Counts(r); err != nil {
		return counts, nil, nil, err
	}
	cursors, err = read.Cursors(r)
	return counts, cursors, h.Table, err
}

// A Keyspace is a part of the store, and its size.
type Keyspace struct {
	Name  string `json:"name"`            // what it contains
	Keys  int64  `json:"keys"`            // number of keys
	Bytes uint64 `json:"bytes,omitempty"` // estimate, on disk; 0 if the engine does not know
}

// A Sizer is an engine that knows the size of its keys on disk (kv.Store).
type Sizer interface {
	DiskBytes() uint64
	RangeBytes(lo, hi []byte) (uint64, error)
}

// Usage returns the size of each part of a store: it counts all keys, and asks the engine for
// their bytes. tick, if not nil, receives the number of keys counted so far.
func Usage(r kv.Reader, table *kinds.Table, engine Sizer, tick func(keys int64)) ([]Keyspace, error) {
	parts, rest := format.Parts(table)
	var out []Keyspace
	total := int64(0)
	count := func(prefix []byte) (n int64, err error) {
		err = kv.ScanPrefix(r, prefix, func(_, _ []byte) error {
			if n++; n%65536 == 0 && tick != nil {
				tick(total + n)
			}
			return nil
		})
		total += n
		return n, err
	}
	var sum uint64
	for _, p := range parts {
		n, err := count(p.Prefix)
		if err != nil {
			return nil, err
		}
		space := Keyspace{Name: p.Name, Keys: n}
		if n > 0 { // engines estimate an empty range as a whole block
			if space.Bytes, err = engine.RangeBytes(p.Prefix, kv.PrefixEnd(p.Prefix)); err != nil {
				return nil, err
			}
		}
		sum += space.Bytes
		out = append(out, space)
	}
	others := Keyspace{Name: "leases, cursors, notes"}
	for _, first := range rest {
		n, err := count([]byte{first})
		if err != nil {
			return nil, err
		}
		others.Keys += n
	}
	out = append(out, others)
	disk := engine.DiskBytes()
	if sum > disk && disk > 0 {
		// The engine estimates in blocks, and a small store has few of them. Drop the
		// estimates if they cannot be true.
		for i := range out {
			out[i].Bytes = 0
		}
		sum = 0
	}
	if disk > sum {
		out = append(out, Keyspace{Name: "logs, indexes and overhead", Bytes: disk - sum})
	}
	return out, nil
}
