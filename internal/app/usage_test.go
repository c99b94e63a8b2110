package app_test

import (
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// A store has no numbers if a part of it cannot be read.
func TestStatsOfABrokenStore(t *testing.T) {
	for name, breaks := range map[string]func(tx kv.Txn){
		"":            func(kv.Txn) {},
		"no header":   func(tx kv.Txn) { tx.Delete(format.HeaderKey) },
		"importing":   func(tx kv.Txn) { tx.Set(format.KeyImport, nil) },
		"the counts":  func(tx kv.Txn) { tx.Set(format.PartKey(format.KeyCounts, 0), nil) },
		"the cursors": func(tx kv.Txn) { tx.Set([]byte{format.KeyCursor}, nil) },
	} {
		store := memkv.Open(memkv.Options{Merger: graph.Merger()})
		_, err := graph.Open(t.Context(), store, graph.Options{})
		must(t, err)
		must(t, store.Update(t.Context(), func(tx kv.Txn) error { breaks(tx); return nil }))
		if st, err := app.ReadStats(t.Context(), "path", store); (err == nil) != (name == "") || err == nil && (st.Store != "path" || st.Counts.Records == nil) {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
	}
}
