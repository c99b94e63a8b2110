//go:build fdb

package fdbkv

import (
	"encoding/binary"
	"fmt"
)

// A value is a run of frames. A frame is a uvarint, 2 × the length + 1 for an operand
// of a merge, then the bytes. The first frame is the value that was set or folded; the
// operands merged since follow, oldest first. So a merge is an append, which FoundationDB
// does without a read and without a conflict (APPEND_IF_FITS), and readers fold.
//
// FoundationDB silently drops an append that would exceed the 100,000 bytes of a value.
// So a folded value has at most maxFolded bytes, and only operands of up to maxAppend
// bytes are appended. One in foldEvery of them, chosen at random, is folded with the value
// instead; no counter is necessary. The probability that a value grows by 50,000 bytes
// without a fold is less than (15/16)^(50,000/66), 10^-21.
const (
	maxFolded = 50_000
	maxAppend = 64
	foldEvery = 16
)

func appendFrame(dst, value []byte, operand bool) []byte {
	head := uint64(len(value)) << 1
	if operand {
		head |= 1
	}
	return append(binary.AppendUvarint(dst, head), value...)
}

// value folds the frames of a key.
func (s *Store) value(key, frames []byte) ([]byte, error) {
	first, operand, rest, err := cutFrame(key, frames)
	if err != nil || len(rest) == 0 && !operand {
		return first, err
	}
	values := [][]byte{first}
	for len(rest) > 0 {
		if first, _, rest, err = cutFrame(key, rest); err != nil {
			return nil, err
		}
		values = append(values, first)
	}
	v, err := s.o.Merger.Fold(nil, key, values, true)
	if err != nil {
		return nil, fmt.Errorf("fdbkv: folding %x: %w", key, err)
	}
	return v, nil
}

func cutFrame(key, frames []byte) (value []byte, operand bool, rest []byte, err error) {
	head, n := binary.Uvarint(frames)
	size := head >> 1
	if n <= 0 || size > uint64(len(frames)-n) {
		return nil, false, nil, fmt.Errorf("fdbkv: the value under %x is malformed", key)
	}
	return frames[n : n+int(size) : n+int(size)], head&1 != 0, frames[n+int(size):], nil
}
