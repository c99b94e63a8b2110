package graph

import (
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
)

// If a kind is added to a store with accounts, the store lacks the earlier records of that kind,
// of every account. A sweep then queues all accounts for a refetch. After the sweep, accounts
// that are still queued just count as incomplete. Sweeps are numbered, not timed: the machine's
// clock may jump.

// SweepDue returns the number of the sweep that must queue all accounts because a kind was
// added, 0 if no sweep is due.
func (s *past) SweepDue() (number uint64) {
	for _, lack := range s.lacks() {
		number = max(number, lack.Sweep)
	}
	if number <= s.Backfill().Swept {
		return 0
	}
	return number
}

// lacks returns the kinds that may lack earlier records.
func (s *core) lacks() map[string]format.Lack {
	if added := s.lacking.Load(); added != nil {
		return *added
	}
	return nil
}

func setLacking(tx kv.Txn, lacking map[string]format.Lack) error {
	if len(lacking) == 0 {
		return nil
	}
	return write.SetJSON(tx, format.KeyLacking, lacking)
}

// lack adds kinds to those that lack earlier records, if the store has accounts.
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
