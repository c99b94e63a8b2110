package read

import (
	"cmp"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Counts adds up the counts of all lanes, and the strings that were claimed.
func Counts(r kv.Reader) (format.Counts, error) {
	total := format.Counts{}.Clone()
	err := kv.ScanPrefix(r, format.KeyCounts, func(_, v []byte) error {
		c, err := format.DecodeCounts(v)
		total.Add(c)
		return err
	})
	if err != nil {
		return total, err
	}
	claimed, err := intern.Claimed(r)
	for _, ns := range dict.Namespaces {
		total.Strings[ns.String()] += claimed[ns]
	}
	return total, err
}

// HiddenVersion returns the version of the hidden set: the sum of those of its
// parts, which only grow, so that in two states that have one sum all are the
// same.
func HiddenVersion(r kv.Reader, l format.Layout) (version uint64, err error) {
	if !l.Shared() {
		return Version(r, format.KeyHidden)
	}
	err = kv.ScanPrefix(r, format.KeyHidden, func(_, v []byte) error {
		n, err := format.DecodeVersion(v)
		version += n
		return err
	})
	return version, err
}

// Version reads the version of the hidden set under a key, 0 if there is none.
func Version(r kv.Reader, key []byte) (uint64, error) {
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	return format.DecodeVersion(v)
}

// Cursors returns the cursor of each source: of its partitions', the lowest.
func Cursors(r kv.Reader) ([]format.Cursor, error) {
	var all []format.Cursor
	err := kv.ScanPrefix(r, []byte{format.KeyCursor}, func(k, v []byte) error {
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

// WriteState returns what every write of events changes: where it is the same before and
// after something, no event was applied in between.
func WriteState(r kv.Reader) (state string, err error) {
	err = kv.ScanPrefix(r, format.KeyWriter, func(k, v []byte) error {
		state += fmt.Sprintf("%x %x\n", k, v)
		return nil
	})
	return state, err
}
