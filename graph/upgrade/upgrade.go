// Package upgrade brings a store of an older format up to date, step by step, each from
// one version of the format (format.Version) to the next.
//
// A change of the format is one more Step in Steps, and one more in format.Version. A step
// that moves no keys is one atomic write. What another moves is moved in slices, each one
// atomic write that also says how far it came: a run that was interrupted, wherever, is gone
// on with by the next, and two at once do each slice once. While it is under way the header
// names no version, so that no program opens the store. The claims of the store's writers
// go with the first write: one that was taken for dead writes nothing any more.
//
// A step that gives values another form must give them another keyspace, too (another
// first byte of their keys): the store's Merger folds whatever is in the store, and sees
// nothing but the key. A value is set as it was read, folded: a Move that makes values of
// more than an engine sets at once (FoundationDB: 50,000 bytes) must divide them.
//
// testdata has a small store of every version, made by the program of its time, which
// every later program must bring up to date (TestStoresOfEveryVersion).
package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"skein.blue/graph/fence"
	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// ErrRefused is returned by Run for a store that it leaves as it is.
var ErrRefused = errors.New("not brought up to date")

// Run brings a store up to date, from where an earlier run was interrupted. It returns
// the version that it found. tick, which may be nil, is told how many keys have been
// moved.
func Run(ctx context.Context, store kv.Store, tick func(keys int64)) (from uint8, err error) {
	return run(ctx, store, Steps, format.Version, tick)
}

func run(ctx context.Context, store kv.Store, steps []Step, target uint8, tick func(keys int64)) (from uint8, err error) {
	u := &upgrade{store: store, tick: tick}
	for first := true; ; first = false {
		version, under, err := u.state(ctx)
		if err != nil {
			return from, err
		}
		if first {
			from = version
		}
		if version == target && !under || version == 0 {
			return from, nil
		}
		i := slices.IndexFunc(steps, func(s Step) bool { return s.From == version })
		if i < 0 {
			return from, fmt.Errorf("%w: the store has format %d, this program reads %d and brings formats from %d on up to date", ErrRefused, version, target, steps[0].From)
		}
		if err := u.step(ctx, &steps[i]); err != nil && !errors.Is(err, errElsewhere) {
			return from, fmt.Errorf("from format %d: %w", version, err)
		}
	}
}

// errElsewhere ends a write of a step that another run has finished meanwhile.
var errElsewhere = errors.New("another run is further")

type upgrade struct {
	store kv.Store
	tick  func(int64)
	moved int64

	emptied bool // the last step left a store without a graph
}

// state returns the version of a store, and whether a step from it is under way. 0 is one
// without a graph, which a step leaves that found nothing in it.
func (u *upgrade) state(ctx context.Context) (version uint8, under bool, err error) {
	err = u.store.View(ctx, func(r kv.Reader) error {
		v, ok, err := r.Get(format.HeaderKey)
		if err != nil {
			return err
		}
		if !ok {
			if u.emptied {
				return nil
			}
			return fmt.Errorf("%w: there is no graph in the store", ErrRefused)
		}
		if before := format.UpgradingHeader(v); before != nil {
			v, under = before, true
		}
		version, err = format.HeaderVersion(v)
		return err
	})
	return version, under, err
}

// notAlive makes sure that nobody writes the store.
func notAlive(r kv.Reader) error {
	alive, err := fence.Writers(r)
	for owner, is := range alive {
		if is {
			return fmt.Errorf("%w: %s writes the store; stop it first", ErrRefused, owner)
		}
	}
	return err
}

// underWay returns the header before a step, if that is under way as of tx.
func underWay(tx kv.Txn, s *Step) (header []byte, err error) {
	v, _, err := tx.Get(format.HeaderKey)
	if err != nil {
		return nil, err
	}
	header = bytes.Clone(format.UpgradingHeader(v))
	if len(header) == 0 || header[0] != s.From {
		return nil, errElsewhere
	}
	return header, nil
}

// step makes a step, or goes on with it.
func (u *upgrade) step(ctx context.Context, s *Step) error {
	whole := len(s.Prefixes) == 0
	err := u.store.Update(ctx, func(tx kv.Txn) error {
		v, _, err := tx.Get(format.HeaderKey)
		if err != nil {
			return err
		}
		v = bytes.Clone(v)
		if format.UpgradingHeader(v) != nil {
			_, err := underWay(tx, s)
			return err
		}
		if len(v) == 0 || v[0] != s.From {
			return errElsewhere
		}
		if err := notAlive(tx); err != nil {
			return err
		}
		for _, keyspace := range []byte{format.KeyClaim, format.KeyHeartbeat} {
			tx.DeleteRange([]byte{keyspace}, []byte{keyspace + 1})
		}
		if whole {
			return u.finish(tx, s, v, nil)
		}
		tx.Delete(format.UpgradeKey)
		tx.Delete(format.UpgradeTallyKey)
		tx.Set(format.HeaderKey, format.AppendUpgrading(nil, v))
		return nil
	})
	if err != nil || whole {
		return err
	}
	for n := range s.Prefixes {
		for more := true; more; {
			moved := int64(0)
			if err := u.store.Update(ctx, func(tx kv.Txn) (err error) {
				more, moved, err = slice(tx, s, n)
				return err
			}); err != nil {
				return err
			}
			if u.moved += moved; u.tick != nil {
				u.tick(u.moved)
			}
		}
	}
	return u.store.Update(ctx, func(tx kv.Txn) error {
		header, err := underWay(tx, s)
		if err != nil {
			return err
		}
		t, err := readTally(tx)
		if err != nil {
			return err
		}
		tx.Delete(format.UpgradeKey)
		tx.Delete(format.UpgradeTallyKey)
		return u.finish(tx, s, header, t)
	})
}

// finish makes the last write of a step.
func (u *upgrade) finish(tx kv.Txn, s *Step, header []byte, t Tally) error {
	made, err := s.Finish(tx, header, t)
	if err != nil {
		return err
	}
	if u.emptied = made == nil; u.emptied {
		tx.Delete(format.HeaderKey)
	} else {
		tx.Set(format.HeaderKey, made)
	}
	return nil
}

// How many keys, and bytes, are moved in one write.
const (
	sliceKeys  = 2000
	sliceBytes = 1 << 20
)

// slice moves some keys under the n-th prefix of a step, and reports whether there may
// be more. Where it came to lies under format.UpgradeKey: the step's From (1), the number of
// the prefix (1), and the last key that was moved.
func slice(tx kv.Txn, s *Step, n int) (more bool, keys int64, err error) {
	header, err := underWay(tx, s)
	if err != nil {
		return false, 0, err
	}
	t, err := readTally(tx)
	if err != nil {
		return false, 0, err
	}
	at, _, err := tx.Get(format.UpgradeKey)
	if err != nil {
		return false, 0, err
	}
	lo := s.Prefixes[n]
	if len(at) > 1 && at[0] == s.From {
		switch done := int(at[1]); {
		case done > n:
			return false, 0, nil
		case done == n && len(at) > 2:
			lo = append(bytes.Clone(at[2:]), 0)
		}
	}
	var last []byte
	size := 0
	err = tx.Snapshot().Scan(lo, kv.PrefixEnd(s.Prefixes[n]), false, func(k, v []byte) (bool, error) {
		last = append(last[:0], k...)
		keys++
		if s.Count != nil {
			if err := s.Count(header, k, v, t); err != nil {
				return false, fmt.Errorf("counting %x: %w", k, err)
			}
			size += len(k) + len(v)
			more = keys >= sliceKeys || size >= sliceBytes
			return !more, nil
		}
		newKey, newValue, err := s.Move(k, v)
		if err != nil {
			return false, fmt.Errorf("moving %x: %w", k, err)
		}
		if !bytes.Equal(k, newKey) {
			tx.Delete(k)
		}
		tx.Set(newKey, newValue)
		size += len(newKey) + len(newValue)
		more = keys >= sliceKeys || size >= sliceBytes
		return !more, nil
	})
	if err != nil {
		return false, 0, err
	}
	if s.Count != nil {
		if err := setJSON(tx, format.UpgradeTallyKey, t); err != nil {
			return false, 0, err
		}
	}
	if more {
		tx.Set(format.UpgradeKey, append([]byte{s.From, byte(n)}, last...))
	} else {
		tx.Set(format.UpgradeKey, []byte{s.From, byte(n + 1)})
	}
	return more, keys, nil
}
