package ask

import (
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
	past, err := read.Backfill(s.r, s.source.Layout)
	if err != nil {
		return nil, err
	}
	lacking := map[kinds.Kind]time.Time{}
	for name, lack := range added {
		if k := s.source.Kinds().ByName(name); k != nil && past.Swept < lack.Sweep {
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

// Holes returns the holes of the stream.
func (s *accounts) Holes() (format.Holes, error) {
	if s.holes == nil {
		h, err := read.Holes(s.r)
		if err != nil {
			return h, err
		}
		s.holes = &h
	}
	return *s.holes, nil
}

// Backfill returns the state of the backfill, of all writers.
func (s *accounts) Backfill() (format.Backfill, error) { return read.Backfill(s.r, s.source.Layout) }
