package format

import (
	"cmp"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// keyTotals is the first byte of the keys of rows that exist once, or once per partition.
const keyTotals = 'm'

// keyspaces has the names of the store's keyspaces, by the first byte of their keys.
var keyspaces = map[byte]string{
	KeyRecord: "records", KeyReverse: "sets", KeyRows: "row groups", KeyAccount: "accounts", KeyErase: "erase jobs", KeyCursor: "cursors",
	KeyDeadLetter: "dead letters", KeyGap: "gaps", KeyClaim: "claims", KeyHeartbeat: "heartbeats", KeyResync: "queue of resyncs", KeyTouched: "touched paths", KeyLabels: "labels", keyTotals: "totals",
	dict.KeyID: "strings", dict.KeyString: "ids", dict.KeyNext: "shard counters", dict.KeyLease: "leases",
	dict.KeyHome: "shard homes", dict.KeyClaims: "claim counts",
}

// KeyspaceOf returns the name of a key's keyspace, or "unknown".
func KeyspaceOf(key []byte) string {
	if len(key) > 0 && keyspaces[key[0]] != "" {
		return keyspaces[key[0]]
	}
	return "unknown"
}

// A Part of the store is all keys with a prefix.
type Part struct {
	Name   string
	Prefix []byte
}

// Parts lists the parts of a store that grow with the network.
func Parts(t *kinds.Table) []Part {
	parts := []Part{
		{"DIDs → ids", []byte{dict.KeyID, byte(dict.DID)}},
		{"ids → DIDs", []byte{dict.KeyString, byte(dict.DID)}},
		{"URIs → ids", []byte{dict.KeyID, byte(dict.URI)}},
		{"ids → URIs", []byte{dict.KeyString, byte(dict.URI)}},
		{"accounts", []byte{KeyAccount}},
	}
	for _, k := range t.All {
		parts = append(parts, Part{k.Name + " records", []byte{KeyRecord, byte(k.Kind)}})
	}
	for _, k := range t.All {
		if k.Kind.IsSelf() {
			continue
		}
		name := cmp.Or(k.Reverse, k.Name+" sets")
		if HasGroups(k.Kind) {
			parts = append(parts, Part{name + " in row groups", []byte{KeyRows, byte(k.Kind)}})
			name = "other " + name
		}
		parts = append(parts, Part{name, []byte{KeyReverse, byte(k.Kind)}})
	}
	parts = append(parts, Part{"labels", []byte{KeyLabels}}, Part{"accounts with a label", []byte{KeyReverse, byte(kinds.LabeledAccount)}}, Part{"records with a label", []byte{KeyReverse, byte(kinds.LabeledRecord)}})
	return append(parts, Part{"hidden accounts", []byte{KeyReverse, byte(kinds.Hidden)}})
}
