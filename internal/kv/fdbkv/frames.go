//go:build fdb

package fdbkv

import (
	"encoding/binary"
	"fmt"
)

// A value is a run of frames, each a uvarint, which is twice a length, and 1 more
// if it is a merge's operand, and so many bytes: what was set, or folded, and
// after it the operands that were merged since, oldest first. So a merge is an append, which FoundationDB does without a read and
// without a conflict (APPEND_IF_FITS), and whoever reads folds.
//
// An append that does not fit into the 100,000 bytes of a value is lost without
// a word. So what is folded may have maxFolded bytes, only operands of up to
// maxAppend are appended, and each is folded with the value instead with a chance
// of one in foldEvery, which needs no count anywhere: that a value grows by 50,000
// bytes without being folded has a chance of less than (15/16)^(50,000/66), 10^-21.
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

// value returns what the frames of a key come to.
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
