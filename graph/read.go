package graph

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein/graph/format"
	"skein/intern"
	"skein/intern/dict"
	"skein/internal/idset"
	"skein/internal/kv"
)

// A Snapshot is one state of the graph, for one goroutine and one question.
type Snapshot struct {
	r      kv.Reader
	s      *Store
	hidden *roaring64.Bitmap
}

// View calls fn with a consistent state of the graph.
func (s *Store) View(ctx context.Context, fn func(*Snapshot) error) error {
	return s.ViewCharged(ctx, nil, fn)
}

// ViewCharged is View, and tells charge, if it is not nil, what is read, as it is
// read: bytes, and readCost for each key. An error from charge ends the read that
// it was called in, and is returned by it.
func (s *Store) ViewCharged(ctx context.Context, charge func(cost int) error, fn func(*Snapshot) error) error {
	return s.kv.View(ctx, func(r kv.Reader) error {
		hidden, err := s.hiddenOf(r)
		if err != nil {
			return fmt.Errorf("graph: reading the hidden accounts: %w", err)
		}
		return fn(&Snapshot{&interruptible{r, ctx, charge}, s, hidden})
	})
}

// readCost is what looking a key up is worth in bytes that are read in order; a
// key of a scan is worth a sixteenth of it.
const readCost = 512

// interruptible is a Reader that ends with a context, however much is read, and
// charges for it.
type interruptible struct {
	kv.Reader
	ctx    context.Context //nolint:containedctx // lives as long as the one View
	charge func(cost int) error
}

func (r *interruptible) passed(cost int) error {
	if err := r.ctx.Err(); err != nil {
		return err //nolint:wrapcheck // it says what happened
	}
	if r.charge == nil {
		return nil
	}
	return r.charge(cost)
}

// Get implements kv.Reader.
func (r *interruptible) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok, err = r.Reader.Get(key)
	if err == nil {
		err = r.passed(readCost + len(value))
	}
	return value, ok, err
}

// MultiGet implements kv.Reader.
func (r *interruptible) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	return r.Reader.MultiGet(keys, func(i int, value []byte, ok bool) error {
		if err := r.passed(readCost + len(value)); err != nil {
			return err
		}
		return each(i, value, ok)
	})
}

// Scan implements kv.Reader.
func (r *interruptible) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if err := r.passed(readCost); err != nil {
		return err
	}
	return r.Reader.Scan(lo, hi, reverse, func(key, value []byte) (bool, error) {
		if err := r.passed(readCost/16 + len(value)); err != nil {
			return false, err
		}
		return each(key, value)
	})
}

// Hidden returns the ids of the accounts that are not active.
func (s *Snapshot) Hidden() idset.Set { return idset.FromBitmap(s.hidden) }

// IsHidden reports whether an account is not active.
func (s *Snapshot) IsHidden(actor dict.ID) bool { return s.hidden.Contains(uint64(actor)) }

// Counts returns the totals.
func (s *Snapshot) Counts() (format.Counts, error) { return readCounts(s.r) }

// Cursors returns the cursors of all sources.
func (s *Snapshot) Cursors() ([]format.Cursor, error) { return readCursors(s.r) }

// readCursors returns the cursor of each source: of its partitions', the lowest.
func readCursors(r kv.Reader) ([]format.Cursor, error) {
	var all []format.Cursor
	err := eachWithPrefix(r, []byte{format.KeyCursor}, func(k, v []byte) error {
		c, err := format.DecodeCursor(v)
		_, source := format.ParseCursorKey(k)
		if c.IsCursor() {
			all = append(all, format.Cursor{Source: source, Seq: c.Seq, Time: c.Time, Future: c.Future})
		}
		return err
	})
	slices.SortFunc(all, func(x, y format.Cursor) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Seq, y.Seq))
	})
	return slices.CompactFunc(all, func(x, y format.Cursor) bool { return x.Source == y.Source }), err
}

// Lookup finds the ids of strings; those that have none are left None.
func (s *Snapshot) Lookup(b *intern.Batch) error { return intern.Lookup(s.r, b) }

// Strings calls each with the string of every id, in order.
func (s *Snapshot) Strings(ns dict.Namespace, ids []dict.ID, each func(i int, s []byte) error) error {
	return intern.Strings(s.r, ns, ids, each)
}

// AllStrings returns every string of a namespace. It is for tests and tools:
// the list is as large as the dictionary.
func (s *Snapshot) AllStrings(ns dict.Namespace) (all []string, err error) {
	var ids []dict.ID
	err = intern.EachID(s.r, ns, func(id dict.ID) error { ids = append(ids, id); return nil })
	if err != nil {
		return nil, err
	}
	err = s.Strings(ns, ids, func(_ int, str []byte) error { all = append(all, string(str)); return nil })
	return all, err
}
