package ask

import (
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Lacking returns the kinds that lack earlier records, and when they were added.
func (s *accounts) Lacking() map[kinds.Kind]time.Time { return s.addedAfter(s.known.Past.Swept) }

// Added returns the kinds that were added to a store with accounts, and when.
func (s *accounts) Added() map[kinds.Kind]time.Time { return s.addedAfter(0) }

// addedAfter returns the kinds that were added after a sweep.
func (s *accounts) addedAfter(sweep uint64) map[kinds.Kind]time.Time {
	lacking := map[kinds.Kind]time.Time{}
	for name, lack := range s.source.Lacks() {
		if k := s.source.Kinds().ByName(name); k != nil && sweep < lack.Sweep {
			lacking[k.Kind] = lack.At
		}
	}
	return lacking
}

// EachAccount calls each for the accounts that this process writes, or all if it writes none, and that have a repo, or lost
// events of one, by ascending id, starting with the id from, until each returns false.
func (s *accounts) EachAccount(from dict.ID, each func(id dict.ID, st *format.RepoState) (more bool)) error {
	l := s.source.Layout
	lo := l.AccountKey(nil, from&^l.AccountMask())
	return s.r.Scan(lo, []byte{format.KeyAccount + 1}, false, func(k, v []byte) (going bool, err error) {
		going = true
		err = l.EachState(k, v, func(id dict.ID, st format.RepoState) error {
			if going && id >= from && st.Has(format.FlagHasRev|format.FlagDesync) && s.source.Owns(l.Settings.PartitionOfID(id)) {
				going = each(id, &st)
			}
			return nil
		})
		return going, err
	})
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

// Known returns what is known of the index as a whole.
func (s *accounts) Known() Known {
	k := *s.known
	k.Unwritten = s.source.Unwritten()
	return k
}
