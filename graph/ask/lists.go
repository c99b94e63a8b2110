package ask

import (
	"bytes"
	"cmp"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// A record of app.bsky.graph.listitem makes two edges, to an account and to a list. The account is
// on the list because one record makes both, so questions join the two kinds by the records'
// keys. The record counts only in the repo of the list's author, as in Bluesky (packages/bsky of
// the reference implementation, data-plane/server/indexing/plugins/list-item.ts).

// JoinedAmong reads the actor's records in a window that make an edge of kind from to a subject that among accepts. It calls
// each, in no order, with this subject and that of the same record's edge of kind to. path is valid during the call.
// among is called once per record with an edge of kind from, and may end the reading with an
// error.
func (s *edges) JoinedAmong(actor dict.ID, from, to kinds.Kind, among func(dict.ID) (bool, error), w Window, each func(path Path, subject, other dict.ID) error) error {
	if actor == dict.None {
		return nil
	}
	var paths []Path
	var subjects []dict.ID
	var failed error
	err := read.RecordsNaming(s.r, from, actor, w, nil, func(r *format.Record) bool {
		var in bool
		if r.Subject != dict.None {
			in, failed = among(r.Subject)
		}
		if in && failed == nil {
			paths, subjects = append(paths, Path{TID: r.Path.TID, Raw: bytes.Clone(r.Path.Raw)}), append(subjects, r.Subject)
		}
		return failed == nil
	})
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	return s.at(to, slices.Repeat([]dict.ID{actor}, len(paths)), paths, func(i int, other dict.ID) error {
		if other == dict.None {
			return nil
		}
		return each(paths[i], subjects[i], other)
	})
}

// Self is kinds.Table.Self.
func (s *state) Self(k kinds.Kind) kinds.Kind { return s.source.Kinds().Self(k) }

// joinedOf is JoinedAmong of several actors and one subject, without inactive actors.
func (s *edges) joinedOf(actors []dict.ID, from, to kinds.Kind, subject dict.ID, w Window, each func(actor, other dict.ID, p Path)) error {
	actors = slices.DeleteFunc(slices.Clone(actors), s.IsHidden)
	var by []dict.ID
	var paths []Path
	err := s.eachNaming(from, subject, Window{}, func(int) Window { return w }, actors, func(i int, p Path) bool {
		p.Raw = bytes.Clone(p.Raw)
		by, paths = append(by, actors[i]), append(paths, p)
		return true
	})
	if err != nil {
		return err
	}
	return s.at(to, by, paths, func(i int, other dict.ID) error {
		if other != dict.None {
			each(by[i], other, paths[i])
		}
		return nil
	})
}

// Listed calls each, in no order, with the accounts that author's records in a window put on
// author's list. An account may come several times, and may be hidden.
func (s *edges) Listed(list, author dict.ID, w Window, each func(member dict.ID, path Path)) error {
	if list == dict.None {
		return nil
	}
	isList := func(id dict.ID) (bool, error) { return id == list, nil }
	return s.JoinedAmong(author, kinds.ListItem, kinds.ListMember, isList, w, func(p Path, _, member dict.ID) error {
		each(member, p)
		return nil
	})
}

// Lists calls each, in no order, with the lists that member is on by records in a window. from
// are the accounts that have put it on lists; Lists skips hidden ones. A list may come several
// times.
func (s *edges) Lists(member dict.ID, from []dict.ID, w Window, each func(list dict.ID, path Path)) error {
	type item struct {
		author, list dict.ID
		path         Path
	}
	var items []item
	err := s.joinedOf(from, kinds.ListMember, kinds.ListItem, member, w, func(author, list dict.ID, p Path) { items = append(items, item{author, list, p}) })
	if err != nil {
		return err
	}
	// Only records of the list's own author count.
	lists := make([]dict.ID, 0, len(items))
	for _, it := range items {
		lists = append(lists, it.list)
	}
	slices.Sort(lists)
	lists = slices.Compact(lists)
	authors := make([]dict.ID, len(lists))
	if err := s.Authors(lists, func(i int, author dict.ID, _ uint64) error { authors[i] = author; return nil }); err != nil {
		return err
	}
	for _, it := range items {
		if i, _ := slices.BinarySearch(lists, it.list); authors[i] == it.author {
			each(it.list, it.path)
		}
	}
	return nil
}
