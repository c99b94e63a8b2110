package intern

import (
	"slices"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A maker writes new strings in both directions.
type maker struct {
	counts  *postCounts // nil: the store has no post groups
	posts   []groupedPost
	entries []dict.Entry
	buf     []byte
}

// add writes the row from string to id, unless the string belongs in a post group. It keeps such a post, and the way back, for
// write. key must stay valid until then.
func (m *maker) add(tx kv.Txn, ns dict.Namespace, id dict.ID, key []byte) {
	m.entries = append(m.entries, dict.EntryOf(ns, id, key[2:]))
	if m.counts != nil && ns == dict.URI {
		if g, p, ok := dict.SplitPost(key[2:]); ok {
			p.ID = id
			m.posts = append(m.posts, groupedPost{Post: p, group: g})
			return
		}
	}
	m.buf = dict.AppendID(m.buf[:0], id)
	tx.Set(key, m.buf)
}

// write merges posts into their groups, and the rows from ids to strings into theirs.
func (m *maker) write(tx kv.Txn, ns dict.Namespace) error {
	err := m.writePosts(tx)
	if !slices.IsSortedFunc(m.entries, dict.CompareEntries) {
		slices.SortFunc(m.entries, dict.CompareEntries)
	}
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
	return err
}

// writePosts merges posts into their groups. Those of full groups get rows.
func (m *maker) writePosts(tx kv.Txn) error {
	defer func() { m.posts = m.posts[:0] }()
	if !slices.IsSortedFunc(m.posts, compareGrouped) {
		slices.SortFunc(m.posts, compareGrouped)
	}
	var key, value []byte
	for posts := m.posts; len(posts) > 0; {
		group, n := posts[0].group, 1
		for n < len(posts) && posts[n].group == group {
			n++
		}
		fit, err := m.counts.room(tx, group, n)
		if err != nil {
			return err
		}
		if fit > 0 {
			var w dict.PostWriter
			value = value[:0]
			for i := range fit {
				value = w.Append(value, posts[i].Post)
			}
			key = dict.AppendPostGroupKey(key[:0], group)
			tx.Merge(key, value)
		}
		for _, p := range posts[fit:n] {
			key = group.AppendForm(append(key[:0], dict.KeyID, byte(dict.URI)), p.Post)
			m.buf = dict.AppendID(m.buf[:0], p.ID)
			tx.Set(key, m.buf)
		}
		posts = posts[n:]
	}
	return nil
}
