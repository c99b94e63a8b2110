package graph

import (
	"context"

	"skein/intern"
	"skein/internal/kv"
)

// Totals returns the counts and cursors of a store that is not opened as a
// graph.
func Totals(ctx context.Context, store kv.Store) (counts Counts, cursors []Cursor, err error) {
	err = store.View(ctx, func(r kv.Reader) (err error) {
		if err := checkFormat(r); err != nil {
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
		{"DIDs → ids", []byte{intern.KeyID, byte(intern.DID)}},
		{"ids → DIDs", []byte{intern.KeyString, byte(intern.DID)}},
		{"URIs → ids", []byte{intern.KeyID, byte(intern.URI)}},
		{"ids → URIs", []byte{intern.KeyString, byte(intern.URI)}},
		{"accounts", []byte{keyAccount}},
	}
	for _, k := range Kinds {
		parts = append(parts, part{k.Name + " records", []byte{keyRecord, byte(k.Kind)}})
	}
	for _, k := range Kinds {
		parts = append(parts, part{k.Reverse, []byte{keyReverse, byte(k.Kind)}})
	}
	parts = append(parts, part{"hidden accounts", []byte{keyReverse, byte(hiddenKind)}})
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
		for _, prefix := range []byte{keyErase, keyCursor, keyDeadLetter, keyGap, intern.KeyNext, intern.KeyLease, intern.KeyHome, 'm', keyClaim, keyHeartbeat, intern.KeyClaims} {
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

// keyspaces names the keyspaces of the store.
var keyspaces = map[byte]string{
	keyRecord: "records", keyReverse: "sets", keyAccount: "accounts", keyErase: "erase jobs", keyCursor: "cursors",
	keyDeadLetter: "dead letters", keyGap: "gaps", keyClaim: "claims", keyHeartbeat: "heartbeats", 'm': "totals",
	intern.KeyID: "strings", intern.KeyString: "ids", intern.KeyNext: "shard counters", intern.KeyLease: "leases",
	intern.KeyHome: "shard homes", intern.KeyClaims: "claim counts",
}

// KeyspaceOf names the keyspace that a key belongs to.
func KeyspaceOf(key []byte) string {
	if len(key) > 0 && keyspaces[key[0]] != "" {
		return keyspaces[key[0]]
	}
	return "unknown"
}
