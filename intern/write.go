package intern

import (
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A maker writes new strings in both directions.
type maker struct {
	entries []dict.Entry
	buf     []byte
}

// add writes the row from string to id, and keeps the way back for write. key must stay valid until then.
func (m *maker) add(tx kv.Txn, ns dict.Namespace, id dict.ID, key []byte) {
	m.entries = append(m.entries, dict.EntryOf(ns, id, key[2:]))
	m.buf = dict.AppendID(m.buf[:0], id)
	tx.Set(key, m.buf)
}

// write merges the rows from ids to strings into their groups.
func (m *maker) write(tx kv.Txn, ns dict.Namespace) {
	slices.SortFunc(m.entries, dict.CompareEntries)
	var key, value []byte
	for entries := m.entries; len(entries) > 0; {
		var w dict.GroupWriter
		value = value[:0]
		group := entries[0].ID &^ dict.GroupMask
		for ; len(entries) > 0 && entries[0].ID&^dict.GroupMask == group; entries = entries[1:] {
			e := &entries[0]
			value = w.Append(value, e)
			if e.Kind == dict.KindOwn {
				tx.Set(dict.AppendOwnKey(nil, ns, e.ID), e.Form)
			}
		}
		key = dict.AppendGroupKey(key[:0], ns, group)
		tx.Merge(key, value)
	}
	m.entries = m.entries[:0]
}
