// Package upgrade brings a store of an older format up to date, step by step, each from
// one version of the format (format.Version) to the next.
//
// A change of the format is one more Step in Steps, and one more in format.Version. What
// a step moves is moved in slices, each one atomic write that also says how far it came:
// a run that was interrupted, wherever, is gone on with by the next. While it is under
// way the header names no version, so that no program opens the store.
//
// A step that gives values another form must give them another keyspace, too (another
// first byte of their keys): the store's Merger folds whatever is in the store, and sees
// nothing but the key.
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

	"skein/graph/fence"
	"skein/graph/format"
	"skein/graph/kinds"
	"skein/internal/kv"
)

// A Step brings a store from one version of the format to the next.
type Step struct {
	From uint8
	// Prefixes are those of the keys that are moved, in this order.
	Prefixes [][]byte
	// Move returns what stands in the place of a key from now on. nil where there are
	// no Prefixes.
	Move func(key, value []byte) (newKey, newValue []byte, err error)
	// Finish is the last write of the step: rows that there is one of. header is the
	// value of format.HeaderKey before the step. It returns the one after it.
	Finish func(tx kv.Txn, header []byte) (newHeader []byte, err error)
}

// Steps are those from the oldest version that can be brought up to date.
var Steps = []Step{
	{From: 3, Finish: oneHeader},
}

// oneHeader puts the settings of the dictionary, which had a row and a version of their
// own, into the header, and the kinds that were indexed.
func oneHeader(tx kv.Txn, _ []byte) ([]byte, error) {
	v, ok, err := tx.Get(format.OldSettingsKey)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("the store has no settings of its dictionary: run skein check with the program that made it")
	}
	h := format.Header{Version: 4, Kinds: []kinds.Kind{1, 2, 3, 4}}
	if h.Settings, err = format.DecodeOldSettings(v); err != nil {
		return nil, err
	}
	tx.Delete(format.OldSettingsKey)
	return h.Append(nil), nil
}

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
		version, header, err := u.state(ctx)
		if err != nil {
			return from, err
		}
		if first {
			from = version
		}
		if version == target && header == nil {
			return from, nil
		}
		i := slices.IndexFunc(steps, func(s Step) bool { return s.From == version })
		if i < 0 {
			return from, fmt.Errorf("%w: the store has format %d, this program reads %d and brings formats from %d on up to date", ErrRefused, version, target, steps[0].From)
		}
		if err := u.step(ctx, &steps[i], header); err != nil {
			return from, fmt.Errorf("from format %d: %w", version, err)
		}
	}
}

type upgrade struct {
	store kv.Store
	tick  func(int64)
	moved int64
}

// state returns the version of a store, and the header that it had before a step that
// was begun and not finished, nil if there is none.
func (u *upgrade) state(ctx context.Context) (version uint8, header []byte, err error) {
	err = u.store.View(ctx, func(r kv.Reader) error {
		v, ok, err := r.Get(format.HeaderKey)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: there is no graph in the store", ErrRefused)
		}
		if header = format.UpgradingHeader(v); header != nil {
			v = header
		}
		if version, err = format.HeaderVersion(v); err != nil {
			return err
		}
		alive, err := fence.Writers(r)
		for owner, is := range alive {
			if is {
				return fmt.Errorf("%w: %s writes the store; stop it first", ErrRefused, owner)
			}
		}
		return err
	})
	return version, header, err
}

// step makes a step, or goes on with it: header is the one before it, if it was begun.
func (u *upgrade) step(ctx context.Context, s *Step, header []byte) error {
	if header == nil {
		err := u.store.Update(ctx, func(tx kv.Txn) error {
			v, _, err := tx.Get(format.HeaderKey)
			if err != nil || format.UpgradingHeader(v) != nil { // an attempt of unknown outcome
				return err
			}
			header = bytes.Clone(v)
			tx.Set(format.HeaderKey, format.AppendUpgrading(nil, v))
			return nil
		})
		if err != nil {
			return err
		}
	}
	for n := range s.Prefixes {
		for more := true; more; {
			if err := u.store.Update(ctx, func(tx kv.Txn) (err error) {
				more, err = u.slice(tx, s, n)
				return err
			}); err != nil {
				return err
			}
			if u.tick != nil {
				u.tick(u.moved)
			}
		}
	}
	return u.store.Update(ctx, func(tx kv.Txn) error {
		v, _, err := tx.Get(format.HeaderKey)
		if err != nil || format.UpgradingHeader(v) == nil { // it is done
			return err
		}
		made, err := s.Finish(tx, header)
		if err != nil {
			return err
		}
		tx.Set(format.HeaderKey, made)
		tx.Delete(format.UpgradeKey)
		return nil
	})
}

// How many keys, and bytes, are moved in one write.
const (
	sliceKeys  = 2000
	sliceBytes = 1 << 20
)

// slice moves some keys under the n-th prefix of a step, and reports whether there may
// be more. Where it came to lies under format.UpgradeKey: the number of the prefix (1),
// and the last key that was moved.
func (u *upgrade) slice(tx kv.Txn, s *Step, n int) (more bool, err error) {
	at, _, err := tx.Get(format.UpgradeKey)
	if err != nil {
		return false, err
	}
	lo := s.Prefixes[n]
	if len(at) > 0 {
		switch done := int(at[0]); {
		case done > n:
			return false, nil
		case done == n && len(at) > 1:
			lo = append(bytes.Clone(at[1:]), 0)
		}
	}
	var last []byte
	keys, size := int64(0), 0
	err = tx.Snapshot().Scan(lo, kv.PrefixEnd(s.Prefixes[n]), false, func(k, v []byte) (bool, error) {
		newKey, newValue, err := s.Move(k, v)
		if err != nil {
			return false, fmt.Errorf("moving %x: %w", k, err)
		}
		if !bytes.Equal(k, newKey) {
			tx.Delete(k)
		}
		tx.Set(newKey, newValue)
		last = append(last[:0], k...)
		keys++
		size += len(newKey) + len(newValue)
		more = keys >= sliceKeys || size >= sliceBytes
		return !more, nil
	})
	if err != nil {
		return false, err
	}
	if more {
		tx.Set(format.UpgradeKey, append([]byte{byte(n)}, last...))
	} else {
		tx.Set(format.UpgradeKey, []byte{byte(n + 1)})
	}
	u.moved += keys
	return more, nil
}
