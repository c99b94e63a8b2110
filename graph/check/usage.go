package check

import (
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
)

// A Keyspace is a part of the store, and its size.
type Keyspace struct {
	Name  string `json:"name"`  // what it contains
	Bytes uint64 `json:"bytes"` // estimate, on disk
}

// Usage returns the size of each part of a store that has any keys, as the engine estimates it.
func Usage(r kv.Reader, table *kinds.Table, engine kv.Store) (out []Keyspace, err error) {
	var sum uint64
	for _, p := range format.Parts(table) {
		end, isEmpty := kv.PrefixEnd(p.Prefix), true // engines estimate an empty range as a whole block
		err := r.Scan(p.Prefix, end, false, func(_, _ []byte) (bool, error) { isEmpty = false; return false, nil })
		if err != nil {
			return nil, err
		}
		if isEmpty {
			continue
		}
		n, err := engine.RangeBytes(p.Prefix, end)
		if err != nil {
			return nil, err
		}
		sum += n
		out = append(out, Keyspace{p.Name, n})
	}
	disk := engine.DiskBytes()
	if sum > disk && disk > 0 {
		// The engine estimates in blocks, and a small store has few of them. Drop the
		// estimates if they cannot be true.
		out, sum = nil, 0
	}
	if disk > sum {
		out = append(out, Keyspace{"the rest, logs and indexes", disk - sum})
	}
	return out, nil
}
