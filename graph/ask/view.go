package ask

import (
	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/idset"
	"skein.blue/internal/kv"
)

// A View is one state of the graph, for one goroutine and one question.
type View struct {
	r      kv.Reader
	source *Source
	hidden *roaring64.Bitmap
}

// A Source is what the snapshots of a store have in common.
type Source struct {
	Layout format.Layout
	// Kinds returns what is indexed.
	Kinds func() *kinds.Table
	// Lacks returns the kinds that were added when the store had accounts, by name.
	Lacks func() map[string]format.Lack
	// Uncompared reports whether the stream had a hole after which the repos have not been
	// compared, if this process knows that without reading.
	Uncompared func() (uncompared, known bool)
	// Owns reports whether this process writes a partition.
	Owns func(part uint8) bool

	sets *setCache
}

// newSource returns a Source whose snapshots keep up to setBytes of large sets decoded. 0
// means 64 MiB. results, if it is not nil, is called for each large set that is asked for,
// with what that took: cache (decoded already), load (read whole) or probe (read in part).
func NewSource(o Source, setBytes int64, results func(result string)) *Source {
	o.sets = newSetCache(setBytes)
	o.sets.results = results
	return &o
}

// Snapshot returns the state that r reads, in which the accounts of hidden are not active.
// charge, if it is not nil, is called with the cost of what is read: bytes, and readCost for
// each key. An error from charge ends the read that it was called in, and is returned by it.
func (s *Source) Snapshot(r kv.Reader, hidden *roaring64.Bitmap, charge func(cost int) error) *View {
	if charge != nil {
		r = &charged{r, charge}
	}
	return &View{r, s, hidden}
}

// readCost is what looking a key up is worth in bytes that are read in order; a
// key of a scan is worth a sixteenth of it.
const readCost = 512

// charged is a Reader that tells what is read.
type charged struct {
	kv.Reader

	charge func(cost int) error
}

// Get implements kv.Reader.
func (r *charged) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok, err = r.Reader.Get(key)
	if err == nil {
		err = r.charge(readCost + len(value))
	}
	return value, ok, err
}

// MultiGet implements kv.Reader.
func (r *charged) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	return r.Reader.MultiGet(keys, func(i int, value []byte, ok bool) error {
		if err := r.charge(readCost + len(value)); err != nil {
			return err
		}
		return each(i, value, ok)
	})
}

// Scan implements kv.Reader.
func (r *charged) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if err := r.charge(readCost); err != nil {
		return err
	}
	return r.Reader.Scan(lo, hi, reverse, func(key, value []byte) (bool, error) {
		if err := r.charge(readCost/16 + len(value)); err != nil {
			return false, err
		}
		return each(key, value)
	})
}

// Hidden returns the ids of the accounts that are not active.
func (s *View) Hidden() idset.Set { return idset.FromBitmap(s.hidden) }

// IsHidden reports whether an account is not active.
func (s *View) IsHidden(actor dict.ID) bool { return s.hidden.Contains(uint64(actor)) }

// Counts returns the totals.
func (s *View) Counts() (format.Counts, error) { return read.Counts(s.r) }

// Cursors returns the cursors of all sources.
func (s *View) Cursors() ([]format.Cursor, error) { return read.Cursors(s.r) }

// Lookup finds the ids of strings; those that have none are left None.
func (s *View) Lookup(b *intern.Batch) error { return intern.Lookup(s.r, b) }

// Strings calls each with the string of every id, in order.
func (s *View) Strings(ns dict.Namespace, ids []dict.ID, each func(i int, s []byte) error) error {
	return intern.Strings(s.r, ns, ids, each)
}

// AllStrings returns every string of a namespace. It is for tests and tools:
// the list is as large as the dictionary.
func (s *View) AllStrings(ns dict.Namespace) (all []string, err error) {
	var ids []dict.ID
	err = intern.EachID(s.r, ns, func(id dict.ID) error { ids = append(ids, id); return nil })
	if err != nil {
		return nil, err
	}
	err = s.Strings(ns, ids, func(_ int, str []byte) error { all = append(all, string(str)); return nil })
	return all, err
}
