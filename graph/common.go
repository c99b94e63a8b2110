package graph

import (
	"bytes"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// The range of small rows that most questions read: the counts, the versions of the hidden set, the holes of
// the stream, and the kinds that lack records. Their keys are neighbours. The few other rows in the range are small,
// too: the header, the kinds, the state of an import.
var commonFrom, commonTo = format.KeyCounts, kv.PrefixEnd(format.KeyLacking)

// commonRows is a Reader of a shared store that reads the common rows with one scan, which it begins at
// once. Each read would otherwise be a request to the cluster. Only Get and Scan use the rows.
type commonRows struct {
	kv.Prefetcher

	rows []commonRow // nil until they are read
}

type commonRow struct{ key, value []byte }

// withCommonRows returns r, or a commonRows if r is a kv.Prefetcher.
func withCommonRows(r kv.Reader) kv.Reader {
	p, ok := r.(kv.Prefetcher)
	if !ok {
		return r
	}
	p.PrefetchScan(commonFrom, commonTo)
	return &commonRows{Prefetcher: p}
}

// isCommon reports whether the keys of a range are common rows.
func isCommon(lo, hi []byte) bool {
	return bytes.Compare(lo, commonFrom) >= 0 && hi != nil && bytes.Compare(hi, commonTo) <= 0
}

// from returns the common rows from a key on.
func (c *commonRows) from(lo []byte) ([]commonRow, error) {
	if c.rows == nil {
		rows := []commonRow{}
		err := c.Prefetcher.Scan(commonFrom, commonTo, false, func(k, v []byte) (bool, error) {
			rows = append(rows, commonRow{bytes.Clone(k), bytes.Clone(v)})
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		c.rows = rows
	}
	i, _ := slices.BinarySearchFunc(c.rows, lo, func(row commonRow, key []byte) int { return bytes.Compare(row.key, key) })
	return c.rows[i:], nil
}

// Get implements kv.Reader.
func (c *commonRows) Get(key []byte) ([]byte, bool, error) {
	if bytes.Compare(key, commonFrom) < 0 || bytes.Compare(key, commonTo) >= 0 {
		return c.Prefetcher.Get(key)
	}
	rows, err := c.from(key)
	if err != nil || len(rows) == 0 || !bytes.Equal(rows[0].key, key) {
		return nil, false, err
	}
	return bytes.Clone(rows[0].value), true, nil // the caller may change it
}

// Scan implements kv.Reader.
func (c *commonRows) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	if reverse || !isCommon(lo, hi) {
		return c.Prefetcher.Scan(lo, hi, reverse, each)
	}
	rows, err := c.from(lo)
	for i := 0; err == nil && i < len(rows) && bytes.Compare(rows[i].key, hi) < 0; i++ {
		var more bool
		if more, err = each(rows[i].key, rows[i].value); err == nil && !more {
			return nil
		}
	}
	return err
}
