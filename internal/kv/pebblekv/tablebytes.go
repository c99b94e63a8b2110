package pebblekv

import (
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
)

// TableBytes counts the data blocks that flushes and compactions write to tables, by the first byte of their
// last key: the write amplification of each keyspace, compared with what is stored of it. It counts blocks,
// because Pebble does not pass all values on; a block has blockSize bytes before compression, or
// one larger value.
type TableBytes [256]atomic.Int64

// Sum returns the bytes so far, before compression, of the keyspaces that have any.
func (t *TableBytes) Sum() map[byte]int64 {
	sum := map[byte]int64{}
	for keyspace := range t {
		if n := t[keyspace].Load(); n > 0 {
			sum[byte(keyspace)] = n * blockSize
		}
	}
	return sum
}

// collector returns a collector of properties of one table. It only counts, and leaves no property.
func (t *TableBytes) collector() pebble.BlockPropertyCollector { return &tableCounter{to: t} }

type tableCounter struct {
	to   *TableBytes
	last byte // the keyspace of the last key
	n    [256]int64
}

var errSuffix = errors.New("pebblekv: keys have no suffixes")

func (*tableCounter) Name() string { return "skein.tablebytes" }

func (c *tableCounter) AddPointKey(key pebble.InternalKey, _ []byte) error {
	if len(key.UserKey) > 0 {
		c.last = key.UserKey[0]
	}
	return nil
}

func (*tableCounter) AddRangeKeys(sstable.Span) error { return nil }

func (*tableCounter) AddCollectedWithSuffixReplacement(_, _, _ []byte) error { return errSuffix }

func (*tableCounter) SupportsSuffixReplacement() bool { return false }

func (c *tableCounter) FinishDataBlock(buf []byte) ([]byte, error) {
	c.n[c.last]++
	return buf, nil
}

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
