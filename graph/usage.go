package graph

import (
	"context"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/intern/dict"
	"skein/internal/kv"
)

// Totals returns the counts and cursors of a store that is not opened as a
// graph.
func Totals(ctx context.Context, store kv.Store) (counts format.Counts, cursors []format.Cursor, err error) {
	err = store.View(ctx, func(r kv.Reader) (err error) {
		if _, err := ReadHeader(r); err != nil {
			return err
		}
		if counts, err = readCounts(r); err != nil {
			return err
		}
		cursors, err = readCursors(r)
		return err
	})
	return counts, cursors, err
}

// A Keyspace is a part of the store, and what it takes.
type Keyspace struct {
	Name  string `json:"name"`
	Keys  int64  `json:"keys"`
	Bytes uint64 `json:"bytes,omitempty"` // about, on disk; 0 where the engine cannot tell
}

// Usage tells where the bytes of a store are: it counts all keys, and asks the
// engine how many bytes they take. tick, which may be nil, is called with how
// many keys have been counted.
func Usage(ctx context.Context, store kv.Store, tick func(keys int64)) ([]Keyspace, error) {
	type part struct {
		name   string
		prefix []byte
	}
	parts := []part{
		{"DIDs → ids", []byte{dict.KeyID, byte(dict.DID)}},
		{"ids → DIDs", []byte{dict.KeyString, byte(dict.DID)}},
		{"URIs → ids", []byte{dict.KeyID, byte(dict.URI)}},
		{"ids → URIs", []byte{dict.KeyString, byte(dict.URI)}},
		{"accounts", []byte{format.KeyAccount}},
	}
	for _, k := range kinds.All {
		parts = append(parts, part{k.Name + " records", []byte{format.KeyRecord, byte(k.Kind)}})
	}
	for _, k := range kinds.All {
		parts = append(parts, part{k.Reverse, []byte{format.KeyReverse, byte(k.Kind)}})
	}
	parts = append(parts, part{"hidden accounts", []byte{format.KeyReverse, byte(kinds.Hidden)}})
	out := make([]Keyspace, 0, len(parts)+1)
	var total, counted int64
	err := store.View(ctx, func(r kv.Reader) error {
		count := func(lo, hi []byte) (n int64, err error) {
			err = r.Scan(lo, hi, false, func(_, _ []byte) (bool, error) {
				if n++; n%65536 == 0 {
					if tick != nil {
						tick(total + n)
					}
					if err := ctx.Err(); err != nil {
						return false, err
					}
				}
				return true, nil
			})
			total += n
			return n, err
		}
		// What lies between the parts is the rest: leases, cursors, notes.
		for _, p := range parts {
			n, err := count(p.prefix, kv.PrefixEnd(p.prefix))
			if err != nil {
				return err
			}
			counted += n
			out = append(out, Keyspace{Name: p.name, Keys: n})
		}
		rest := int64(0)
		for _, prefix := range []byte{format.KeyErase, format.KeyCursor, format.KeyDeadLetter, format.KeyGap, dict.KeyNext, dict.KeyLease, dict.KeyHome, 'm', format.KeyClaim, format.KeyHeartbeat, dict.KeyClaims} {
			n, err := count([]byte{prefix}, []byte{prefix + 1})
			if err != nil {
				return err
			}
			rest += n
		}
		out = append(out, Keyspace{Name: "leases, cursors, notes", Keys: rest})
		return nil
	})
	if err != nil {
		return nil, err
	}
	sum, disk := uint64(0), store.DiskBytes()
	for i, p := range parts {
		if out[i].Keys == 0 {
			continue // an estimate of nothing is a whole block
		}
		if out[i].Bytes, err = store.RangeBytes(p.prefix, kv.PrefixEnd(p.prefix)); err != nil {
			return nil, err
		}
		sum += out[i].Bytes
	}
	if sum > disk && disk > 0 {
		// The engine tells by blocks, and a small store has a few for everything:
		// where its answers cannot be true they are left out.
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
