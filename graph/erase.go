package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Erasing reports whether records of a deleted account are left.
func (s *Store) Erasing() bool {
	s.status.Lock()
	defer s.status.Unlock()
	return slices.ContainsFunc(s.lanes, func(l *lane) bool { return len(l.erasing) > len(l.stuck) })
}

// EraseSlice erases up to Options.SliceSize records of one deleted account, in one atomic write.
// The job's row says where to continue, so that an interrupted job resumes.
func (s *Store) EraseSlice(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, l := range s.lanes {
		for actor := range l.erasing {
			if l.stuck[actor] {
				continue
			}
			err := l.eraseSlice(ctx, actor)
			s.countIncomplete()
			if l.isStuck(actor, err) {
				return nil
			}
			return err
		}
	}
	return nil
}

// isStuck reports whether an error means that the records of a deleted account cannot be erased, because a value of the
// store is malformed. Then they stay, until this process starts again, and what is said of the account meanwhile leaves it
// desynchronized and hidden.
func (l *lane) isStuck(actor dict.ID, err error) bool {
	if !errors.Is(err, dict.ErrStored) {
		return false
	}
	l.store.o.Logger.Error("erasing a deleted account needs a malformed value of the store; its records stay", "account", actor, "error", err)
	l.store.status.Lock()
	defer l.store.status.Unlock()
	l.stuck[actor] = true
	return true
}

// eraseNow finishes the job of an account.
func (l *lane) eraseNow(ctx context.Context, actor dict.ID) error {
	for {
		if err := l.eraseSlice(ctx, actor); err != nil || !l.erasing[actor] {
			return err
		}
	}
}

// eraseAll finishes all jobs.
func (l *lane) eraseAll(ctx context.Context) error {
	for _, actor := range slices.Sorted(maps.Keys(l.erasing)) {
		if l.stuck[actor] {
			continue
		}
		if err := l.eraseNow(ctx, actor); err != nil && !l.isStuck(actor, err) {
			return err
		}
	}
	return nil
}

func (l *lane) eraseSlice(ctx context.Context, actor dict.ID) error {
	l.store.status.Lock()
	l.erasing[actor] = true // its row says so, whatever this process remembers
	l.store.status.Unlock()
	layout := l.store.layout
	var done bool
	var counts format.Counts
	var state format.RepoState
	var erased []write.SetChange
	err := l.update(ctx, func(tx kv.Txn) error {
		counts = l.counts.Clone()
		resume, _, err := tx.Get(format.EraseKey(actor))
		if err != nil {
			return err
		}
		resume = bytes.Clone(resume) // the next read may overwrite it
		// Prefer the state in memory: reading one folds everything that was merged into it.
		var kept bool
		if state, kept = l.states.Get(actor); !kept {
			if state, _, err = read.FindAccount(tx, layout, actor); err != nil {
				return err
			}
		}
		var next []byte
		next, erased, err = l.eraseRecords(tx, actor, resume, &counts, &state)
		if err != nil {
			return err
		}
		if done = next == nil; !done {
			tx.Set(format.EraseKey(actor), next)
		} else {
			tx.Delete(format.EraseKey(actor))
			state.Flags &^= format.FlagErasing | format.FlagRecords // no record is left
			state.Top = 0
		}
		write.States(tx, layout, func(yield func(dict.ID, *format.RepoState) bool) { yield(actor, &state) })
		return write.SetCounts(tx, l.first, l.counts, counts)
	})
	if err != nil {
		return fmt.Errorf("graph: erasing a deleted account: %w", err)
	}
	l.counts = counts
	l.states.Put(actor, state)
	if done {
		l.store.status.Lock()
		delete(l.erasing, actor)
		delete(l.stuck, actor)
		l.store.status.Unlock()
	}
	if m := l.store.o.Metrics; m != nil {
		for _, c := range erased {
			m.Edges.WithLabelValues(l.store.Kinds().Info(c.Kind).Name, "remove").Inc()
		}
	}
	l.notify(nil, erased, map[dict.ID]bool{actor: true})
	return nil
}

// eraseRecords deletes a slice of the actor's records, kind by kind, from the last chunk to the
// first: leaves go before their head. It starts below the key
// resume, and returns the key below which to continue, nil at the end.
func (l *lane) eraseRecords(tx kv.Txn, actor dict.ID, resume []byte, counts *format.Counts, state *format.RepoState) (next []byte, erased []write.SetChange, err error) {
	var sets []write.SetChange
	left := l.store.o.SliceSize
	for _, k := range l.store.Kinds().All {
		lo := format.AppendRecordsKey(nil, k.Kind, actor)
		hi := kv.PrefixEnd(lo)
		if len(resume) > 0 {
			if bytes.Compare(resume, lo) < 0 || bytes.Compare(resume, hi) > 0 {
				continue // this kind is done
			}
			hi, resume = resume, nil
		}
		err := tx.Scan(lo, hi, true, func(key, v []byte) (bool, error) {
			if left <= 0 {
				return false, nil
			}
			records, err := read.LiveRecords(tx, key, v)
			if err != nil {
				return false, err
			}
			tx.Delete(key)
			next = bytes.Clone(key)
			left -= max(1, len(records))
			counts.Records[k.Name] -= int64(len(records))
			if k.Kind <= kinds.LastBuiltIn {
				state.Records[k.Kind-1] -= uint32(len(records))
			}
			for _, r := range records {
				if r.Subject != dict.None {
					sets = append(sets, write.SetChange{Kind: k.Kind, Remove: true, Subject: r.Subject, Member: actor})
				}
			}
			return true, nil
		})
		if err != nil {
			return nil, nil, err
		}
		if left <= 0 {
			break
		}
		next = nil
	}
	// Several records of an actor may name the same subject. RemoveMembers drops the duplicates.
	sets, err = write.RemoveMembers(tx, sets, l.store.layout, l.store.merger)
	return next, sets, err
}
