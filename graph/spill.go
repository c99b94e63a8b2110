package graph

import (
	"context"
	"errors"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// spillsPerWrite bounds the values that one write spills.
const spillsPerWrite = 32

// spill spills the lane's values that the Merger found too large.
func (l *lane) spill(ctx context.Context) error {
	most := spillsPerWrite
	for {
		keys := l.store.merger.TakeLarge(most, l.isMineToSpill)
		if len(keys) == 0 {
			return nil
		}
		err := l.update(ctx, func(tx kv.Txn) error {
			for _, key := range keys {
				if _, err := l.store.merger.SpillOne(tx, l.store.layout, []byte(key)); err != nil {
					return fmt.Errorf("%x: %w", key, err)
				}
			}
			return nil
		})
		switch {
		case err == nil:
		case (errors.Is(err, kv.ErrTooLarge) || errors.Is(err, dict.ErrStored)) && len(keys) > 1:
			for _, key := range keys {
				l.store.merger.MarkLarge([]byte(key))
			}
			most = len(keys) / 2
		case errors.Is(err, kv.ErrTooLarge): // the value stays large, and readable
			l.store.o.Writes.Retried("spill_too_large")
			return nil
		case errors.Is(err, dict.ErrStored): // what reads the value says so
			l.store.o.Writes.Retried("malformed")
			return nil
		default:
			return fmt.Errorf("graph: spilling large values: %w", err)
		}
	}
}

// isMineToSpill reports whether a key belongs to a partition of the lane. Sets of labels, of all
// partitions, belong to the lane of the first one, which writes them. A chunk of an account that is being erased is nobody's: erasing
// works its way down the keys, and a spill would add chunks behind it.
func (l *lane) isMineToSpill(key string) bool {
	switch {
	case key[0] == format.KeyReverse && kinds.Kind(key[1]).IsLabel():
		return l.parts.Has(0)
	case key[0] == format.KeyRecord:
		if _, actor, _, _, err := format.ParseChunkKey([]byte(key)); err == nil && l.erasing[actor] {
			return false
		}
	}
	return l.parts.Has(l.store.layout.PartitionOfKey([]byte(key)))
}
