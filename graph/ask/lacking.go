package ask

import (
	"bytes"
	"errors"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// Lacking returns the kinds that lack earlier records, and when they were added; nil if there are
// none.
func (s *accounts) Lacking() (map[kinds.Kind]time.Time, error) {
	added := s.source.Lacks()
	if len(added) == 0 {
		return nil, nil
	}
	known, err := s.Known()
	if err != nil {
		return nil, err
	}
	lacking := map[kinds.Kind]time.Time{}
	for name, lack := range added {
		if k := s.source.Kinds().ByName(name); k != nil && known.Past.Swept < lack.Sweep {
			lacking[k.Kind] = lack.At
		}
	}
	return lacking, nil
}

// EachAccount calls each for the accounts with a repo that this process writes, by ascending id,
// starting with the id from, until each returns false.
func (s *accounts) EachAccount(from dict.ID, each func(id dict.ID, st *format.RepoState) (more bool)) error {
	l := s.source.Layout
	var failed error
	lo := l.AccountKey(nil, from&^l.AccountMask())
	err := s.r.Scan(lo, []byte{format.KeyAccount + 1}, false, func(k, v []byte) (bool, error) {
		going := true
		failed = l.EachState(k, v, func(id dict.ID, st format.RepoState) error {
			if going && id >= from && st.Has(format.FlagHasRev) && s.source.Owns(l.Settings.PartitionOfID(id)) {
				going = each(id, &st)
			}
			return nil
		})
		return going, failed
	})
	return err
}

// Known is what is known of the index as a whole.
type Known struct {
	Holes  format.Holes         // of the stream
	Past   format.Backfill      // what was read of the time before, and is being read, by all writers
	Counts format.AccountCounts // of accounts

	Unwritten Unwritten // what nobody indexes at present
}

// Unwritten is the part of the network that no living writer indexes, in a store that several processes write.
type Unwritten struct {
	Parts    format.Partitions
	Settings dict.Settings
}

// Percent returns how much of the network that is, rounded up.
func (u Unwritten) Percent() int {
	n := max(1, int(u.Settings.Partitions))
	return (100*u.Parts.Len() + n - 1) / n
}

// Has reports whether an account belongs to it. did may be "" if the account has an id.
func (u Unwritten) Has(did string, id dict.ID) bool {
	if id != dict.None {
		return u.Parts.Has(u.Settings.PartitionOfID(id))
	}
	return u.Parts != 0 && u.Parts.Has(u.Settings.PartitionOf([]byte(did)))
}

// knownRows are the rows that Known was read from. Most questions read them, and they change at most once a write.
type knownRows struct {
	rows [3][]byte
	Known
}

var knownKeys = [][]byte{format.PartKey(format.KeyHoles, 0), format.PartKey(format.KeyBackfill, 0), format.PartKey(format.KeyCounts, 0)}

// Known returns what is known of the index as a whole.
func (s *accounts) Known() (Known, error) {
	if s.known == nil {
		k, err := s.readKnown()
		if err != nil {
			return k, err
		}
		k.Unwritten = s.source.Unwritten()
		s.known = &k
	}
	return *s.known, nil
}

func (s *accounts) readKnown() (k Known, err error) {
	var errs [3]error
	if s.source.Layout.Shared() {
		k.Holes, errs[0] = read.Holes(s.r)
		k.Past, errs[1] = read.Backfill(s.r, s.source.Layout)
		k.Counts, errs[2] = read.AccountCounts(s.r)
		return k, errors.Join(errs[:]...)
	}
	last, next, same := s.source.known.Load(), knownRows{}, true
	err = s.r.MultiGet(knownKeys, func(i int, v []byte, _ bool) error {
		if bytes.Equal(v, last.rows[i]) {
			next.rows[i] = last.rows[i]
		} else {
			next.rows[i], same = bytes.Clone(v), false
		}
		return nil
	})
	if err != nil || same {
		return last.Known, err
	}
	for i, v := range next.rows {
		switch {
		case len(v) == 0: // the store has no such row yet
		case i == 0:
			next.Holes, errs[i] = format.FromJSON[format.Holes](v)
		case i == 1:
			next.Past, errs[i] = format.FromJSON[format.Backfill](v)
		default:
			next.Counts, errs[i] = format.FromJSON[format.AccountCounts](v)
		}
	}
	if err = errors.Join(errs[:]...); err == nil {
		s.source.known.Store(&next)
	}
	return next.Known, err
}
