package ask

import (
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// accounts reads the states of accounts and what is known of the whole store. Its methods are View's.
type accounts struct {
	*state

	known *Known // without Unwritten
}

// Account returns the state of an account, and its row in the queue of resyncs, nil if it is not
// queued.
func (s *accounts) Account(did string) (st format.RepoState, known bool, row *format.Resync, err error) {
	id, err := AccountID(s.r, did)
	if err != nil || id == dict.None {
		return st, false, nil, err
	}
	return s.AccountAndQueue(id)
}

// AccountAndQueue is Account by id.
func (s *accounts) AccountAndQueue(id dict.ID) (st format.RepoState, known bool, row *format.Resync, err error) {
	if st, known, err = read.FindAccount(s.r, s.source.Layout, id); err != nil || !st.Has(format.FlagResync) {
		return st, known, nil, err
	}
	row, err = read.JSON[format.Resync](s.r, format.ResyncKey(id))
	return st, known, row, err
}

// RecordCounts calls each, in order, with the number of records of a kind that each of the accounts has. Those of built-in kinds
// are in the states of the accounts.
func (s *accounts) RecordCounts(k kinds.Kind, actors []dict.ID, each func(i int, n uint64) error) error {
	if k <= kinds.LastBuiltIn {
		return s.States(actors, func(i int, st format.RepoState, _ bool) error { return each(i, uint64(st.Records[k-1])) })
	}
	for i, id := range actors {
		n := uint64(0)
		if err := read.Records(s.r, k, id, func(*format.Record) bool { n++; return true }); err != nil {
			return err
		}
		if err := each(i, n); err != nil {
			return err
		}
	}
	return nil
}

// States calls each, in order, with the state of each of the accounts, and whether it is known. Neighbours are read together.
func (s *accounts) States(actors []dict.ID, each func(i int, st format.RepoState, known bool) error) error {
	layout := s.source.Layout
	var keys kv.Keys
	var from []int // of each key, the first of the actors; the last is the end
	for i, id := range actors {
		if i == 0 || (id^actors[i-1])&^layout.AccountMask() != 0 {
			keys.Add(layout.AccountKey(nil, id))
			from = append(from, i)
		}
	}
	from = append(from, len(actors))
	return s.r.MultiGet(keys.List(), func(g int, v []byte, _ bool) error {
		for i := from[g]; i < from[g+1]; i++ {
			st, known, err := layout.AccountIn(v, actors[i])
			if err != nil {
				return err
			}
			if err := each(i, st, known); err != nil {
				return err
			}
		}
		return nil
	})
}

// Resyncs calls each for the repos that are queued for a refetch.
func (s *accounts) Resyncs(each func(did string, row format.Resync) error) error {
	var ids []dict.ID
	var rows []format.Resync
	flush := func() error {
		err := s.Strings(dict.DID, ids, func(i int, did []byte) error { return each(string(did), rows[i]) })
		ids, rows = ids[:0], rows[:0]
		return err
	}
	err := kv.ScanPrefix(s.r, []byte{format.KeyResync}, func(k, v []byte) error {
		id, err := format.ParseActorKey(k)
		if err != nil {
			return err
		}
		row, err := format.FromJSON[format.Resync](v)
		if err != nil {
			return err
		}
		ids, rows = append(ids, id), append(rows, row)
		if len(ids) < 2000 {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// AccountID returns the id of an account, dict.None if it has none.
func AccountID(r kv.Reader, did string) (dict.ID, error) {
	var b intern.Batch
	n := b.Add(dict.DID, []byte(did))
	err := intern.Lookup(r, &b)
	return b.ID(n), err
}
