package graph

import (
	"skein/graph/format"
	"skein/internal/kv"
)

// writeAccounts writes a group's accounts that changed.
func writeAccounts(l format.Layout, tx kv.Txn, key, group []byte) {
	if l.Shared() {
		tx.Set(key, group)
		return
	}
	tx.Merge(key, group)
}
