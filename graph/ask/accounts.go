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

	known *Known // nil until it was read
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
	v, ok, err := s.r.Get(format.ResyncKey(id))
	if err != nil || !ok {
		return st, known, nil, err
	}
	q, err := format.DecodeResync(v)
	return st, known, &q, err
}

// RecordCount counts an account's records of a kind.
func (s *accounts) RecordCount(k kinds.Kind, actor dict.ID) (n int64, err error) {
	if actor == dict.None {
		return 0, nil
	}
	err = read.Records(s.r, k, actor, func(*format.Record) bool { n++; return true })
	return n, err
}

// Gaps returns the gaps.
func (s *accounts) Gaps() ([]format.Gap, error) { return read.Gaps(s.r) }

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
		row, err := format.DecodeResync(v)
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

// Missing calls each for incomplete repos that are not queued: desynchronized ones, and if
// partial is set those whose past is unknown.
func (s *accounts) Missing(partial bool, each func(did string) error) error {
	wanted := format.FlagDesync
	if partial {
		wanted |= format.FlagPartial
	}
	var ids []dict.ID
	flush := func() error {
		err := s.Strings(dict.DID, ids, func(_ int, did []byte) error { return each(string(did)) })
		ids = ids[:0]
		return err
	}
	err := kv.ScanPrefix(s.r, []byte{format.KeyAccount}, func(k, v []byte) error {
		return s.source.Layout.EachState(k, v, func(id dict.ID, st format.RepoState) error {
			if st.Flags&wanted == 0 || st.Has(format.FlagResync) {
				return nil
			}
			if ids = append(ids, id); len(ids) < 2000 {
				return nil
			}
			return flush()
		})
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
