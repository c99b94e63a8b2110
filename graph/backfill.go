package graph

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// past is what is known of the time before this index listened, and of the holes since: the state of the backfill, the
// repos to fetch, and what they are compared with. Its methods are Store's.
type past struct {
	*core

	backfill format.Backfill // guarded by status
}

// Backfill returns the state of the backfill, as of the last commit.
func (s *past) Backfill() format.Backfill {
	s.status.Lock()
	defer s.status.Unlock()
	return cloneBackfill(s.backfill)
}

func cloneBackfill(b format.Backfill) format.Backfill {
	b.Hosts, b.Roster.Unlisted = maps.Clone(b.Hosts), slices.Clone(b.Roster.Unlisted)
	return b
}

// ChangeBackfill changes the state of the backfill.
func (s *past) ChangeBackfill(ctx context.Context, change func(*format.Backfill)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeBackfill(ctx, change)
}

func (s *past) changeBackfill(ctx context.Context, change func(*format.Backfill)) error {
	b := cloneBackfill(s.backfill)
	change(&b)
	if len(s.lanes) == 0 {
		return nil
	}
	b.Parts = format.Partitions(s.parts.Load())
	if err := s.lanes[0].update(ctx, func(tx kv.Txn) error { return setFirst(tx, format.KeyBackfill, b.Parts, b) }); err != nil {
		return fmt.Errorf("graph: storing the backfill's state: %w", err)
	}
	s.setBackfill(b)
	return nil
}

// noteFirst notes that a batch begins with the first event of a stream, in a store without accounts: all accounts are
// those that the stream tells of.
func (s *past) noteFirst(ctx context.Context, source string, b *batch.Batch) error {
	if !isStream(source) || s.backfill.Archive != "" || b.First() != 1 || s.backfill.Roster.Known() || s.backfill.Around.Hops > 0 || s.mayHaveAccounts() {
		return nil
	}
	for _, l := range s.lanes {
		for _, rows := range l.sources {
			if slices.ContainsFunc(rows, func(c format.CursorRow) bool { return c.Seq > 0 }) {
				return nil
			}
		}
	}
	return s.changeBackfill(ctx, func(b *format.Backfill) {
		b.Roster = format.Roster{AsOf: time.Now().UTC(), Source: format.RosterStream}
	})
}

// refuteFirst ends a roster that the stream gave if the first commit that it brought of some repo had one before it: the
// network is older than the stream. Apply calls it before it writes anything: until then that account is partial.
func (s *past) refuteFirst(ctx context.Context) error {
	if s.partial.Load() == 0 && s.total.Partial == 0 || s.backfill.Roster.Source != format.RosterStream || s.o.ReadOnly || s.o.Import {
		return nil
	}
	return s.changeBackfill(ctx, func(b *format.Backfill) { b.Roster = format.Roster{} })
}

// setBackfill takes over a state of the backfill.
func (s *past) setBackfill(b format.Backfill) {
	s.status.Lock()
	s.backfill = b
	s.status.Unlock()
	for _, l := range s.lanes {
		m := &l.modes
		*m = write.Modes{Queues: s.o.Queued != nil, Archiving: b.Archive != "", Part: b.Around.Hops > 0}
		m.Partial = m.Queues && b.Roster.Known() && !m.Archiving
		if !m.Archiving {
			l.archive = nil
		}
	}
}

// ChangeResync changes the row of a repo in the queue of resyncs, and reports whether the repo
// is queued. Only then it calls change, and it writes the row if change returns true.
func (s *past) ChangeResync(ctx context.Context, did string, change func(*format.Resync) bool) (queued bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	part := s.layout.Settings.PartitionOf([]byte(did))
	i := slices.IndexFunc(s.lanes, func(l *lane) bool { return l.parts.Has(part) })
	if i < 0 {
		return false, nil
	}
	err = s.lanes[i].update(ctx, func(tx kv.Txn) error {
		id, err := ask.AccountID(tx, did)
		if err != nil || id == dict.None {
			return err
		}
		row, err := read.JSON[format.Resync](tx, format.ResyncKey(id))
		if queued = row != nil; err != nil || !queued || !change(row) {
			return err
		}
		return write.SetJSON(tx, format.ResyncKey(id), row)
	})
	if err != nil {
		return queued, fmt.Errorf("graph: changing the queue's row of %s: %w", did, err)
	}
	return queued, nil
}

// EndArchive is called once an archive was read to its end. It makes partial repos complete if the archive has what the
// stream lacks. The others missed something, and need a refetch: it returns their accounts. If it is interrupted, call it again.
func (s *past) EndArchive(ctx context.Context) (doubtful []string, err error) {
	var ids []dict.ID
	for i := range s.lanes {
		for lo := []byte{format.KeyAccount}; lo != nil; {
			var some []dict.ID
			if lo, some, err = s.completeSlice(ctx, i, lo); err != nil {
				return nil, fmt.Errorf("graph: ending an archive: %w", err)
			}
			ids = append(ids, some...)
		}
		for lo := []byte{format.KeyTouched}; lo != nil; {
			if lo, err = s.forgetSlice(ctx, i, lo); err != nil {
				return nil, fmt.Errorf("graph: ending an archive: %w", err)
			}
		}
	}
	err = s.kv.View(ctx, func(r kv.Reader) error {
		return intern.Strings(r, dict.DID, ids, func(_ int, did []byte) error { doubtful = append(doubtful, string(did)); return nil })
	})
	return doubtful, err
}

// sliceGroups bounds the groups of accounts, or the touched paths, that one write covers.
const sliceGroups = 2000

// completeSlice covers some groups of accounts from lo on, and returns where to continue, nil at
// the end.
func (s *past) completeSlice(ctx context.Context, lane int, lo []byte) (next []byte, doubtful []dict.ID, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	l := s.lanes[lane]
	type changed struct {
		id dict.ID
		st format.RepoState
	}
	var states []changed
	var counts format.Counts
	err = l.update(ctx, func(tx kv.Txn) error {
		states, doubtful, next = nil, nil, nil
		counts = l.counts.Clone()
		n := 0
		err := tx.Snapshot().Scan(lo, []byte{format.KeyAccount + 1}, false, func(k, v []byte) (bool, error) {
			if n++; n > sliceGroups {
				next = bytes.Clone(k)
				return false, nil
			}
			return true, s.layout.EachState(k, v, func(id dict.ID, st format.RepoState) error {
				if !st.Has(format.FlagPartial) || !l.parts.Has(s.layout.Settings.PartitionOfID(id)) || st.Has(format.FlagResync) {
					return nil
				}
				was := st
				proven, err := wasArchived(tx, id, &st)
				if st.Flags &^= format.FlagPartial; !proven {
					doubtful = append(doubtful, id)
					st.Flags = was.Flags | format.FlagDesync
				}
				states = append(states, changed{id, st})
				counts.Move(&was, &st)
				return err
			})
		})
		if err != nil {
			return err
		}
		write.States(tx, s.layout, func(yield func(dict.ID, *format.RepoState) bool) {
			for i := range states {
				if !yield(states[i].id, &states[i].st) {
					return
				}
			}
		})
		return write.SetCounts(tx, l.first, l.counts, counts)
	})
	if err != nil {
		return nil, nil, err
	}
	l.counts = counts
	for _, c := range states {
		l.states.Put(c.id, c.st)
	}
	s.countIncomplete()
	return next, doubtful, nil
}

// wasArchived reports whether an archive that was read to its end has all of a partial account from before the stream took
// over: its last rev is the one that the stream's first commit follows, or no commit has come since.
func wasArchived(r kv.Reader, id dict.ID, st *format.RepoState) (bool, error) {
	if st.Has(format.FlagDesync) || st.DeletionSource != 0 {
		return false, nil
	}
	if st.Has(format.FlagNoRoot) {
		return true, nil
	}
	since, reached := st.Rev, format.Rev(0)
	prefix := format.AppendTouchedKey(nil, id, kinds.Hidden, []byte{})
	err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		t, err := format.DecodeTouched(k, v)
		if !t.IsReached() {
			since = t.Commit.Since
			return false, err
		}
		reached = t.Commit.Since
		return true, err
	})
	return reached != 0 && reached == since, err
}

// forgetSlice deletes the notes of stream changes to repos that are not queued.
func (s *past) forgetSlice(ctx context.Context, lane int, lo []byte) (next []byte, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	l := s.lanes[lane]
	err = l.update(ctx, func(tx kv.Txn) error {
		next = nil
		n := 0
		var keys [][]byte
		queued := map[dict.ID]bool{}
		err := tx.Snapshot().Scan(lo, []byte{format.KeyTouched + 1}, false, func(k, v []byte) (bool, error) {
			if n++; n > sliceGroups {
				next = bytes.Clone(k)
				return false, nil
			}
			t, err := format.DecodeTouched(k, v)
			if err == nil && l.parts.Has(s.layout.Settings.PartitionOfID(t.Actor)) {
				keys = append(keys, bytes.Clone(k))
				queued[t.Actor] = false
			}
			return true, err
		})
		if err != nil {
			return err
		}
		for id := range queued {
			if _, queued[id], err = tx.Get(format.ResyncKey(id)); err != nil {
				return err
			}
		}
		for _, k := range keys {
			if id, _ := dict.ReadID(k[1:]); !queued[id] {
				tx.Delete(k)
			}
		}
		return nil
	})
	return next, err
}
