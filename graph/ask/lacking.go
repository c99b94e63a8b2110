package ask

import (
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Lacking returns the kinds that lack earlier records, and when they were added; nil if there are
// none.
func (s *accounts) Lacking() (map[kinds.Kind]time.Time, error) {
	added := s.source.Lacks()
	if len(added) == 0 {
		return nil, nil
	}
	swept, err := s.swept()
	if err != nil {
		return nil, err
	}
	lacking := map[kinds.Kind]time.Time{}
	for name, lack := range added {
		if k := s.source.Kinds().ByName(name); k != nil && swept < lack.Sweep {
			lacking[k.Kind] = lack.At
		}
	}
	return lacking, nil
}

// swept returns the number of the last sweep that all writers have finished.
func (s *accounts) swept() (swept uint64, err error) {
	end := uint8(0) // rows were found for the partitions below end
	err = kv.ScanPrefix(s.r, format.KeyBackfill, func(k, v []byte) error {
		b, err := format.DecodeBackfill(v)
		first := uint8(0)
		if s.source.Layout.Shared() {
			first = k[len(k)-1]
		}
		if first == 0 || b.Swept < swept {
			swept = b.Swept
		}
		if first <= end {
			end = max(end, b.End)
		}
		return err
	})
	if end < s.source.Layout.Settings.Partitions {
		swept = 0 // a writer has not finished any
	}
	return swept, err
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

// Uncompared reports whether repos have not been compared with the relay's list since a hole of
// the stream, for any writer.
func (s *accounts) Uncompared() (uncompared bool, err error) {
	if s.holesRead {
		return s.uncompared, nil
	}
	uncompared, err = read.Uncompared(s.r)
	s.holesRead, s.uncompared = err == nil, uncompared
	return uncompared, err
}
