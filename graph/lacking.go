package graph

import (
	"encoding/json"
	"fmt"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A store that had accounts when a kind was added lacks what was made of it until then, of
// every one of them. That ends when a sweep has queued all of them to be fetched: from then on
// those that have not been fetched are not complete. Sweeps are counted, and not timed: the
// clock of the machine may jump.

// Lacking returns the kinds of which something is lacking so, and since when they are
// indexed; nil if there are none.
func (s *Snapshot) Lacking() (map[kinds.Kind]time.Time, error) {
	added := s.s.lacking.Load()
	if added == nil || len(*added) == 0 {
		return nil, nil
	}
	swept, err := s.swept()
	if err != nil {
		return nil, err
	}
	lacking := map[kinds.Kind]time.Time{}
	for name, lack := range *added {
		if k := s.s.Kinds().ByName(name); k != nil && swept < lack.Sweep {
			lacking[k.Kind] = lack.At
		}
	}
	return lacking, nil
}

// swept returns the number of the last sweep that all writers have ended.
func (s *Snapshot) swept() (swept uint64, err error) {
	end := uint8(0) // up to which partition that is known
	err = kv.ScanPrefix(s.r, format.KeyBackfill, func(k, v []byte) error {
		b, err := format.DecodeBackfill(v)
		first := uint8(0)
		if s.s.layout.Shared() {
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
	if end < s.s.layout.Settings.Partitions {
		swept = 0 // a writer has ended none
	}
	return swept, err
}

// SweepDue returns the number of the sweep that has to queue all accounts because a kind was
// added, 0 if none has to.
func (s *Store) SweepDue() (number uint64) {
	added := s.lacking.Load()
	if added == nil {
		return 0
	}
	for _, lack := range *added {
		number = max(number, lack.Sweep)
	}
	if number <= s.Backfill().Swept {
		return 0
	}
	return number
}

// EachAccount calls each for the accounts that have a repo, of those written here, from one
// on, in the order of their ids, until it returns false.
func (s *Snapshot) EachAccount(from dict.ID, each func(id dict.ID, st *format.RepoState) (more bool)) error {
	l := s.s.layout
	var failed error
	lo := l.AccountKey(nil, from&^l.AccountMask())
	err := s.r.Scan(lo, []byte{format.KeyAccount + 1}, false, func(k, v []byte) (bool, error) {
		going := true
		failed = l.EachState(k, v, func(id dict.ID, st format.RepoState) error {
			if going && id >= from && st.Has(format.FlagHasRev) && s.s.writers.ownsPart(l.Settings.PartitionOfID(id)) {
				going = each(id, &st)
			}
			return nil
		})
		return going, failed
	})
	return err
}

// readLacking reads what a store lacks, by the names of kinds.
func readLacking(r kv.Reader) (map[string]format.Lack, error) {
	v, ok, err := r.Get(format.KeyLacking)
	if err != nil || !ok {
		return nil, err
	}
	return format.DecodeLacking(v)
}

func setLacking(tx kv.Txn, lacking map[string]format.Lack) error {
	if len(lacking) == 0 {
		return nil
	}
	v, err := json.Marshal(lacking)
	if err != nil {
		return fmt.Errorf("graph: writing of which kinds something is lacking: %w", err)
	}
	tx.Set(format.KeyLacking, v)
	return nil
}

// lack adds kinds to what a store lacks, if it has accounts.
func lack(r kv.Reader, lacking map[string]format.Lack, names []string, now time.Time) (map[string]format.Lack, error) {
	counts, err := read.Counts(r)
	if err != nil || counts.Accounts == 0 || len(names) == 0 {
		return lacking, err
	}
	sweep := uint64(0)
	for _, l := range lacking {
		sweep = max(sweep, l.Sweep)
	}
	if lacking == nil {
		lacking = map[string]format.Lack{}
	}
	for _, name := range names {
		lacking[name] = format.Lack{At: now, Sweep: sweep + 1}
	}
	return lacking, nil
}
