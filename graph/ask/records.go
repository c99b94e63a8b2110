package ask

import (
	"bytes"
	"cmp"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Several records may make one edge. Every method shows the same one of them, by this rule:
//
// A subject that is a record with a TID as its key has a time. Of the edge's records, the first
// one made after that time is shown, else the last one before it, else one whose key is not a
// TID. A subject without a time is an account, or a record with another key: the record with the
// lowest key is shown, as in app.bsky.graph.getRelationships.

// betterRecord reports whether p is shown rather than q, where both make one edge. since is the
// TID of the subject, or Timeless.
func betterRecord(p, q Path, since uint64) bool {
	switch {
	case since == Timeless:
		return lowerKey(p, q)
	case !p.HasTime() || !q.HasTime():
		return !q.HasTime() && (p.HasTime() || lowerKey(p, q))
	case (p.TID >= since) != (q.TID >= since):
		return p.TID >= since
	case p.TID >= since:
		return p.TID < q.TID
	}
	return p.TID > q.TID
}

// lowerKey reports whether p is the lower of two record keys, as strings.
func lowerKey(p, q Path) bool {
	if p.Raw == nil && q.Raw == nil {
		return p.TID < q.TID // TIDs sort as their numbers do
	}
	return string(p.AppendRkey(nil)) < string(q.AppendRkey(nil))
}

// A ShownRecord picks the record of an edge that is shown.
type ShownRecord struct {
	path  Path
	found bool
}

// Offer offers a record of the edge. since is the TID of the edge's subject, or Timeless.
func (e *ShownRecord) Offer(p Path, since uint64) {
	if e.found && !betterRecord(p, e.path, since) {
		return
	}
	p.Raw = bytes.Clone(p.Raw)
	e.path, e.found = p, true
}

// Path returns the path of the shown record; found is false if no record was offered.
func (e *ShownRecord) Path() (p Path, found bool) { return e.path, e.found }

// RecordsTo calls each, in no order, with the record in a window by which each of the actors has
// an edge to subject. It skips actors without one. since is the TID of the subject, or Timeless.
func (s *edges) RecordsTo(k kinds.Kind, subject dict.ID, since uint64, w Window, actors []dict.ID, each func(i int, p Path) error) error {
	return s.shownTo(k, subject, since, func(int) Window { return w }, actors, each)
}

// A Dated is a member of a reverse set and its date: all of its records of the edge are of that second (format.DateOf).
type Dated struct {
	Actor dict.ID
	Date  uint32
}

// RecordsAt is RecordsTo for members whose dates may be known: of large accounts, it reads the records of that second.
func (s *edges) RecordsAt(k kinds.Kind, subject dict.ID, since uint64, w Window, members []Dated, each func(i int, p Path) error) error {
	actors := make([]dict.ID, len(members))
	for i, m := range members {
		actors[i] = m.Actor
	}
	at := func(i int) Window {
		if members[i].Date >= format.OneRecord {
			return w
		}
		from := int64(members[i].Date) * second
		return w.And(read.WindowOf(from, from+second))
	}
	return s.shownTo(k, subject, since, at, actors, each)
}

// shownTo is RecordsTo with a window for each of the actors.
func (s *edges) shownTo(k kinds.Kind, subject dict.ID, since uint64, within func(i int) Window, actors []dict.ID, each func(i int, p Path) error) (err error) {
	var best ShownRecord
	at := -1
	show := func() {
		if err == nil && best.found {
			err = each(at, best.path)
		}
		best = ShownRecord{}
	}
	var after Window
	if since < EndOfTime {
		after = Window{From: since, To: EndOfTime}
	}
	scanned := s.eachNaming(k, subject, after, within, actors, func(i int, p Path) bool {
		if i != at {
			show()
			at = i
		}
		best.Offer(p, since)
		return err == nil && (after.All() || !after.Has(p)) // the first one in it is shown
	})
	if scanned == nil {
		show()
	}
	return cmp.Or(err, scanned)
}

// mostHeads is how many heads are read at once: their values are in memory together, and the engine reads them before it charges for
// the first.
const mostHeads = 2048

// eachNaming calls each with the paths of the records by which actors have an edge to subject, within the window of each actor: actor by
// actor, by path, until each returns false for this actor. It looks the heads of many actors up together. Of actors whose heads do not have all records, it
// first reads those in the window first, unless that is the zero Window: if it finds some there, each gets no others.
func (s *edges) eachNaming(k kinds.Kind, subject dict.ID, first Window, within func(i int) Window, actors []dict.ID, each func(i int, p Path) (more bool)) error {
	isSubject := func(id dict.ID) bool { return id == subject }
	naming := func(i int) error {
		found := false
		read := func(w Window) error {
			return read.RecordsNaming(s.r, k, actors[i], w, isSubject, func(r *format.Record) bool { found = true; return each(i, r.Path) })
		}
		if !first.All() && !k.IsLabel() {
			if err := read(within(i).And(first)); err != nil || found {
				return err
			}
		}
		return read(within(i))
	}
	var key []byte
	var records []format.Record
	for from := 0; from < len(actors); from += mostHeads {
		some := actors[from:min(from+mostHeads, len(actors))]
		var others []int // whose records have to be read one by one
		var keys kv.Keys
		for _, actor := range some {
			key = format.AppendRecordsKey(key[:0], k, actor)
			keys.Add(key)
		}
		err := s.r.MultiGet(keys.List(), func(n int, v []byte, ok bool) error {
			i := from + n
			var simple bool
			if records, simple = format.CoderOf(k, actors[i]).AppendNaming(records[:0], v, isSubject); !simple || k.IsLabel() {
				others = append(others, i)
			}
			w := within(i)
			for j := range records {
				if w.Has(records[j].Path) && !each(i, records[j].Path) {
					break
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i := range ahead(s.state, slices.Values(others), func(i int) { s.BeginRecords(k, actors[i]) }) {
			if err := naming(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// RecordsFrom calls each, in no order, with the record in a window by which actor has an edge to
// each of the subjects. It skips subjects without one. since returns the TID of a subject, or
// Timeless. subjects may contain duplicates.
func (s *edges) RecordsFrom(k kinds.Kind, actor dict.ID, subjects []dict.ID, since func(i int) uint64, w Window, each func(i int, p Path) error) error {
	if actor == dict.None {
		return nil
	}
	first := make(map[dict.ID]int, len(subjects))
	for i, id := range subjects {
		if _, again := first[id]; !again {
			first[id] = i
		}
	}
	best := make([]ShownRecord, len(subjects))
	err := read.RecordsNaming(s.r, k, actor, w, func(id dict.ID) bool { _, ok := first[id]; return ok && id != dict.None }, func(r *format.Record) bool {
		i := first[r.Subject]
		best[i].Offer(r.Path, since(i))
		return true
	})
	for i, id := range subjects {
		if err == nil && best[first[id]].found {
			err = each(i, best[first[id]].path)
		}
	}
	return err
}

// Live calls each, in no order, for those of uris that are live records of a kind, with their author and the subject that they
// name, None if they name none. A kind of records themselves (kinds.Kind.IsSelf) has every record of its collection, and names the
// record: so of posts, it tells which exist; the kind of repliedTo has those that are replies, and names what they answer. Live
// tells neither whether authors are hidden, nor what the index lacks of their repos (AccountAndQueue). It takes a few batched reads.
func (s *edges) Live(k kinds.Kind, uris []dict.ID, each func(i int, author, subject dict.ID) error) error {
	var found, of []int // of each record of the collection, the index in uris, and of its author in b
	var paths []Path
	var b intern.Batch
	collection := "/" + s.Kind(k).Collection + "/"
	err := s.Strings(dict.URI, uris, func(i int, uri []byte) error {
		if did, ok := dict.AuthorOf(uri); ok {
			if rkey, ok := bytes.CutPrefix(uri[len("at://")+len(did):], []byte(collection)); ok {
				found, of, paths = append(found, i), append(of, b.Add(dict.DID, did)), append(paths, ParsePath(bytes.Clone(rkey)))
			}
		}
		return nil
	})
	if err == nil {
		err = s.Lookup(&b)
	}
	authors := make([]dict.ID, len(of))
	for n := range of {
		authors[n] = b.ID(of[n])
	}
	if err == nil {
		err = s.at(k, authors, paths, func(n int, subject dict.ID) error { return each(found[n], authors[n], subject) })
	}
	return err
}

// at calls each, in no order, with the subjects of the records that actors have at paths: one for each actor. Equal actors that
// follow one another are read together.
func (s *edges) at(k kinds.Kind, actors []dict.ID, paths []Path, each func(i int, subject dict.ID) error) error {
	var runs, others [][2]int // of equal actors; and those whose records have to be read one by one
	for i := range actors {
		if i > 0 && actors[i] == actors[i-1] {
			runs[len(runs)-1][1]++
		} else {
			runs = append(runs, [2]int{i, i + 1})
		}
	}
	var ids []uint64
	for some := range slices.Chunk(runs, mostHeads) {
		var keys kv.Keys
		for _, run := range some {
			keys.Add(format.AppendRecordsKey(nil, k, actors[run[0]]))
		}
		err := s.r.MultiGet(keys.List(), func(n int, v []byte, ok bool) (err error) {
			i, simple := some[n][0], some[n][1] == some[n][0]+1 && paths[some[n][0]].HasTime()
			if simple {
				ids, simple = format.CoderOf(k, actors[i]).AppendSubjects(ids[:0], v, paths[i].TID, paths[i].TID)
			}
			if !simple && ok {
				others = append(others, some[n])
			}
			for n := 0; simple && n < len(ids); n++ {
				err = cmp.Or(err, each(i, dict.ID(ids[n])))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for run := range ahead(s.state, slices.Values(others), func(run [2]int) { s.BeginRecords(k, actors[run[0]]) }) {
		var next []int // the run, by path
		for i := run[0]; i < run[1]; i++ {
			next = append(next, i)
		}
		slices.SortFunc(next, func(x, y int) int { return format.ComparePaths(paths[x], paths[y]) })
		var w Window
		if last := paths[next[len(next)-1]]; last.HasTime() { // then all of them have
			w = Window{From: paths[next[0]].TID, To: last.TID + 1}
		}
		var failed error
		err := read.RecordsNaming(s.r, k, actors[run[0]], w, nil, func(r *format.Record) bool {
			for len(next) > 0 && format.ComparePaths(paths[next[0]], r.Path) < 0 {
				next = next[1:]
			}
			for n := 0; n < len(next) && failed == nil && format.ComparePaths(paths[next[n]], r.Path) == 0; n++ {
				failed = each(next[n], r.Subject)
			}
			return failed == nil && len(next) > 0
		})
		if err = cmp.Or(err, failed); err != nil {
			return err
		}
	}
	return nil
}

// Naming calls each, in no order, with the records of a kind in a window that name subject, and their paths. from are the accounts
// that have such records; Naming skips inactive ones. The table must have a kind of the collection's records themselves.
func (s *edges) Naming(k kinds.Kind, subject dict.ID, from []dict.ID, w Window, each func(record dict.ID, p Path)) error {
	return s.joinedOf(from, k, s.Self(k), subject, w, func(_, record dict.ID, p Path) { each(record, p) })
}

// Records calls each, in no order, with the subject and path of each of an actor's records, even
// if accounts are hidden, until each returns false. The path is valid during the call.
func (s *edges) Records(k kinds.Kind, actor dict.ID, each func(p Path, subject dict.ID) bool) error {
	if actor == dict.None {
		return nil
	}
	return read.RecordsNaming(s.r, k, actor, Window{}, nil, func(r *format.Record) bool {
		return r.Subject == dict.None || each(r.Path, r.Subject)
	})
}
