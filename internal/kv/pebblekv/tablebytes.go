package pebblekv

import (
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// TableBytes counts the bytes of keys and values that flushes and compactions put into tables, before
// compression, by the first byte of the key: the write amplification of each keyspace, compared with what is
// stored of it.
type TableBytes [256]atomic.Int64

// Sum returns the bytes so far of the keyspaces that have any.
func (t *TableBytes) Sum() map[byte]int64 {
	sum := map[byte]int64{}
	for keyspace := range t {
		if n := t[keyspace].Load(); n > 0 {
			sum[byte(keyspace)] = n
		}
	}
	return sum
}

// collector returns a collector of properties of one table. It only counts, and leaves no property.
func (t *TableBytes) collector() pebble.BlockPropertyCollector { return &tableCounter{to: t} }

type tableCounter struct {
	to *TableBytes
	n  [256]int64
}

var errSuffix = errors.New("pebblekv: keys have no suffixes")

func (*tableCounter) Name() string { return "skein.tablebytes" }

func (c *tableCounter) AddPointKey(key pebble.InternalKey, value []byte) error {
	if len(key.UserKey) > 0 {
		c.n[key.UserKey[0]] += int64(len(key.UserKey) + len(value))
	}
	return nil
}

func (*tableCounter) AddRangeKeys(sstable.Span) error { return nil }

func (*tableCounter) AddCollectedWithSuffixReplacement(_, _, _ []byte) error { return errSuffix }

func (*tableCounter) SupportsSuffixReplacement() bool { return false }

func (*tableCounter) FinishDataBlock(buf []byte) ([]byte, error) { return buf, nil }

func (*tableCounter) AddPrevDataBlockToIndexBlock() {}

func (*tableCounter) FinishIndexBlock(buf []byte) ([]byte, error) { return buf, nil }

func (c *tableCounter) FinishTable(buf []byte) ([]byte, error) {
	for keyspace, n := range c.n {
		if n > 0 {
			c.to[keyspace].Add(n)
		}
	}
	return buf, nil
}
