package graph

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"skein/intern"
	"skein/internal/kv"
)

// Erasing reports whether a deleted account waits to be erased.
func (s *Store) Erasing() bool { return len(s.erasing) > 0 }

// EraseSlice erases up to Options.SliceSize records of one deleted account, in
// one atomic write. What has been erased is gone from the store, and the job's
// row says where to go on: it is resumed wherever it was interrupted.
func (s *Store) EraseSlice(ctx context.Context) error {
	for actor := range s.erasing {
		return s.eraseSlice(ctx, actor)
	}
	return nil
}

// eraseNow finishes the job of an account whose next event has come.
func (s *Store) eraseNow(ctx context.Context, actor intern.ID) error {
	s.erasing[actor] = true // by its row, whatever this process remembers
	for s.erasing[actor] {
		if err := s.eraseSlice(ctx, actor); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) eraseSlice(ctx context.Context, actor intern.ID) error {
	var done bool
	var counts Counts
	var state repoState
	var erased map[Kind]int
	err := s.update(ctx, func(tx kv.Txn) error {
		counts = s.counts.clone()
		resume, _, err := tx.Get(eraseKey(actor))
		if err != nil {
			return err
		}
		var next []byte
		next, erased, err = s.eraseRecords(tx, actor, bytes.Clone(resume), &counts)
		if err != nil {
			return err
		}
		if done = next == nil; !done {
			tx.Set(eraseKey(actor), next)
		} else {
			tx.Delete(eraseKey(actor))
			if state, err = readRepoState(tx, actor); err != nil {
				return err
			}
			state.flags &^= flagErasing
			tx.Set(accountKey(nil, actor), state.append(nil))
		}
		return s.writeCounts(tx, counts)
	})
	if err != nil {
		return fmt.Errorf("graph: erasing a deleted account: %w", err)
	}
	s.counts = counts
	if done {
		delete(s.erasing, actor)
		s.states.put(actor, state)
	}
	if m := s.o.Metrics; m != nil {
		for k, n := range erased {
			m.Edges.WithLabelValues(k.String(), "remove").Add(float64(n))
		}
	}
	s.gauges()
	return nil
}

func readRepoState(r kv.Reader, actor intern.ID) (repoState, error) {
	v, ok, err := r.Get(accountKey(nil, actor))
	if err != nil || !ok {
		return repoState{}, err
	}
	return decodeRepoState(v)
}

// eraseRecords deletes a slice of the actor's records, from the record key
// resume on, and returns the key to go on from, nil at the end.
func (s *Store) eraseRecords(tx kv.Txn, actor intern.ID, resume []byte, counts *Counts) (next []byte, erased map[Kind]int, err error) {
	var sets edgeSorter
	left := s.o.SliceSize
	var kbuf, vbuf []byte
	for _, k := range Kinds {
		lo := appendRecordKey(nil, k.Kind, actor, nil)
		hi := kv.PrefixEnd(lo)
		if bytes.Compare(resume, hi) >= 0 {
			continue
		}
		if bytes.Compare(resume, lo) > 0 {
			lo = resume
		}
		err := tx.Scan(lo, hi, false, func(key, v []byte) (bool, error) {
			if left == 0 {
				next = bytes.Clone(key)
				return false, nil
			}
			left--
			subject, err := decodeSubject(v)
			if err != nil {
				return false, err
			}
			tx.Delete(key)
			counts.Records[k.Name]--
			if subject != intern.None {
				kbuf = appendForwardKey(kbuf[:0], k.Kind, actor, subject, key[recordKeyPrefix:])
				tx.Delete(kbuf)
				sets.sets = append(sets.sets, setChange{k.Kind, true, subject, actor})
			}
			return true, nil
		})
		if err != nil || next != nil {
			if err != nil {
				return nil, nil, err
			}
			break
		}
	}
	// An actor's two records of one subject are one member.
	slices.SortFunc(sets.sets, func(x, y setChange) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.subject, y.subject))
	})
	sets.sets = slices.Compact(sets.sets)
	sets.merge(tx, &kbuf, &vbuf)
	erased = map[Kind]int{}
	for _, c := range sets.sets {
		erased[c.kind]++
	}
	return next, erased, nil
}
