// Package upgrade migrates a store of an older format to the newest one, one version at a
// time (Steps). Package format documents the versions and reads their bytes; this one does not.
//
// A step without prefixes is one atomic write. Any other step visits its keys in slices. Each
// slice is one atomic write that also records the progress, so the next run continues where an
// interrupted one stopped, and two runs at once do each slice once. Meanwhile the header names
// no version, so no program opens the store. The first write of a step deletes the claims of
// the store's writers: a writer that only seemed dead can no longer write.
//
// A step that changes the form of values must also move them to another keyspace (another
// first byte), unless the new form differs from every old one: the store's Merger folds every value in the store, and sees only its key. Move
// receives folded values, and its results are set whole: it must divide what an engine cannot
// set at once (FoundationDB: more than 50,000 bytes).
//
// testdata has small stores of versions 3, 4, 6, 8 and 9, made by the programs of their time. Every
// later program must migrate them (TestStoresOfEveryVersion).
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

// ErrRefused is returned by Run for a store that it leaves unchanged.
var ErrRefused = errors.New("cannot upgrade")

// Run migrates a store to format.Newest, and continues an interrupted run. It returns the
// version that it found. tick, if not nil, receives the number of keys visited so far.
func Run(ctx context.Context, store kv.Store, tick func(keys int64)) (from format.Version, err error) {
	return run(ctx, store, Steps, format.Newest, tick)
}

func run(ctx context.Context, store kv.Store, steps []Step, target format.Version, tick func(keys int64)) (from format.Version, err error) {
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
			return from, fmt.Errorf("%w: the store has format %d; this program upgrades formats %d to %d", ErrRefused, version, steps[0].From, target)
		}
		if err := u.step(ctx, &steps[i]); err != nil && !errors.Is(err, errElsewhere) {
			return from, fmt.Errorf("upgrading format %d to %d: %w", version, steps[i].To, err)
		}
	}
}

// errElsewhere ends a write of a step that another run has finished meanwhile.
var errElsewhere = errors.New("another run has finished this step")

type upgrade struct {
	store   kv.Store
	tick    func(int64)
	visited int64

	emptied bool // the last step left a store without a graph
}

// state returns the version of a store, and whether a step from it is under way. Version 0
// means that a step found nothing in the store, and left it without a graph.
func (u *upgrade) state(ctx context.Context) (version format.Version, under bool, err error) {
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

// checkNoWriters returns an error if a writer of the store is alive.
func checkNoWriters(r kv.Reader) error {
	alive, err := fence.Writers(r)
	for owner, is := range alive {
		if is {
			return fmt.Errorf("%w: %s writes the store; stop it first", ErrRefused, owner)
		}
	}
	return err
}

// underWay returns the header before a step, if the step is under way as of tx.
func underWay(tx kv.Txn, s *Step) (h format.Header, err error) {
	v, _, err := tx.Get(format.HeaderKey)
	if err != nil {
		return h, err
	}
	before := bytes.Clone(format.UpgradingHeader(v))
	if len(before) == 0 || format.Version(before[0]) != s.From {
		return h, errElsewhere
	}
	return headerOf(tx, before)
}

// step makes a step, or continues it.
func (u *upgrade) step(ctx context.Context, s *Step) error {
	var done bool
	if err := u.store.Update(ctx, func(tx kv.Txn) (err error) { done, err = u.begin(tx, s); return err }); err != nil || done {
		return err
	}
	var prepared any
	if s.Prepare != nil {
		// Nobody else writes now, and the upgrade's own writes do not change what Prepare reads.
		if _, err := u.store.ViewAcross(ctx, func(r kv.Reader) (err error) {
			v, _, err := r.Get(format.HeaderKey)
			if err != nil {
				return err
			}
			before := bytes.Clone(format.UpgradingHeader(v))
			if len(before) == 0 || format.Version(before[0]) != s.From {
				return errElsewhere
			}
			h, err := headerOf(r, before)
			if err != nil {
				return err
			}
			prepared, err = s.Prepare(r, h)
			return err
		}); err != nil {
			return err
		}
	}
	for n := range s.Prefixes {
		for more := true; more; {
			visited := int64(0)
			if err := u.store.Update(ctx, func(tx kv.Txn) (err error) {
				more, visited, err = slice(tx, s, prepared, n)
				return err
			}); err != nil {
				return err
			}
			if u.visited += visited; u.tick != nil {
				u.tick(u.visited)
			}
		}
	}
	return u.store.Update(ctx, func(tx kv.Txn) error {
		h, err := underWay(tx, s)
		if err != nil {
			return err
		}
		t, err := readTally(tx)
		if err != nil {
			return err
		}
		tx.Delete(format.UpgradeKey)
		tx.Delete(format.UpgradeTallyKey)
		return u.finish(tx, s, h, t)
	})
}

// begin makes the first write of a step, and all of a step that visits no keys: it is then done.
func (u *upgrade) begin(tx kv.Txn, s *Step) (done bool, err error) {
	v, _, err := tx.Get(format.HeaderKey)
	if err != nil {
		return false, err
	}
	v = bytes.Clone(v)
	if format.UpgradingHeader(v) != nil {
		_, err := underWay(tx, s)
		return false, err
	}
	if len(v) == 0 || format.Version(v[0]) != s.From {
		return false, errElsewhere
	}
	h, err := headerOf(tx, v)
	if err != nil {
		return false, err
	}
	if err := checkNoWriters(tx); err != nil {
		return false, err
	}
	for _, keyspace := range []byte{format.KeyClaim, format.KeyHeartbeat} {
		tx.DeleteRange([]byte{keyspace}, []byte{keyspace + 1})
	}
	if len(s.Prefixes) == 0 || s.OneWriter && (format.Layout{Settings: h.Settings}).Shared() {
		return true, u.finish(tx, s, h, nil)
	}
	tx.Delete(format.UpgradeKey)
	tx.Delete(format.UpgradeTallyKey)
	tx.Set(format.HeaderKey, format.AppendUpgrading(nil, v))
	return false, nil
}

// finish makes the last write of a step.
func (u *upgrade) finish(tx kv.Txn, s *Step, h format.Header, t Tally) error {
	v, err := s.Finish(tx, h, t)
	if err != nil {
		return err
	}
	if u.emptied = v == nil; u.emptied {
		tx.Delete(format.HeaderKey)
		return nil
	}
	if version, err := format.HeaderVersion(v); err != nil || version != s.To {
		return errors.Join(fmt.Errorf("the new header %x is not of format %d", v, s.To), err)
	}
	tx.Set(format.HeaderKey, v)
	return nil
}

// The keys and bytes of one slice, at most.
const (
	sliceKeys  = 2000
	sliceBytes = 1 << 20
)

// slice visits some keys under the n-th prefix of a step, and reports whether there may be
// more. The progress lies under format.UpgradeKey: the step's From (1), the number of the
// prefix (1), and the last visited key.
func slice(tx kv.Txn, s *Step, prepared any, n int) (more bool, keys int64, err error) {
	h, err := underWay(tx, s)
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
	if len(at) > 1 && format.Version(at[0]) == s.From {
		switch done := int(at[1]); {
		case done > n:
			return false, 0, nil
		case done == n && len(at) > 2:
			lo = append(bytes.Clone(at[2:]), 0)
		}
	}
	var last []byte
	size := 0
	visit := func(k, v []byte) (int, error) { return s.visit(tx, h, prepared, k, v, t) }
	end := func() error { return nil }
	if s.Open != nil {
		visit, end = s.Open(tx, h)
	}
	err = tx.Snapshot().Scan(lo, kv.PrefixEnd(s.Prefixes[n]), false, func(k, v []byte) (bool, error) {
		last = append(last[:0], k...)
		written, err := visit(k, v)
		keys, size = keys+1, size+written
		more = keys >= sliceKeys || size >= sliceBytes
		return !more, err
	})
	if err == nil {
		err = end()
	}
	if err != nil {
		return false, 0, err
	}
	if s.Count != nil {
		if err := setJSON(tx, format.UpgradeTallyKey, t); err != nil {
			return false, 0, err
		}
	}
	if more {
		tx.Set(format.UpgradeKey, append([]byte{byte(s.From), byte(n)}, last...))
	} else {
		tx.Set(format.UpgradeKey, []byte{byte(s.From), byte(n + 1)})
	}
	return more, keys, nil
}

// visit counts or moves one row, and returns how many bytes that took.
func (s *Step) visit(tx kv.Txn, h format.Header, prepared any, k, v []byte, t Tally) (size int, err error) {
	if s.Visit != nil {
		written, err := s.Visit(tx, h, prepared, k, v)
		if err != nil {
			return 0, fmt.Errorf("visiting %x: %w", k, err)
		}
		return written, nil
	}
	if s.Count != nil {
		if err := s.Count(h, k, v, t); err != nil {
			return 0, fmt.Errorf("counting %x: %w", k, err)
		}
		return len(k) + len(v), nil
	}
	newKey, newValue, err := s.Move(h, k, v)
	if err != nil {
		return 0, fmt.Errorf("moving %x: %w", k, err)
	}
	if !bytes.Equal(k, newKey) {
		tx.Delete(k)
	}
	tx.Set(newKey, newValue)
	return len(newKey) + len(newValue), nil
}
