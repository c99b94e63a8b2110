package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"skein.blue/intern/dict"
)

// ErrKeyspace is returned by Folder.Fold for a key in a keyspace whose values do not fold.
var ErrKeyspace = errors.New("format: the values of this keyspace do not fold")

// unreadable begins a value that holds others as they were. Values of records and sets begin with a number,
// and this one has more than 64 bits.
var unreadable = bytes.Repeat([]byte{0xff}, 11)

// AppendUnreadable appends a value that keeps values that do not fold, because one of them is malformed. A reader of
// the new value fails, like one of the malformed value. Further values can be folded into it. So compactions go on, and no
// byte is lost.
func AppendUnreadable(dst []byte, values [][]byte) []byte {
	dst = append(dst, unreadable...)
	for _, v := range values {
		if kept, is := bytes.CutPrefix(v, unreadable); is {
			dst = append(dst, kept...)
		} else {
			dst = append(binary.AppendUvarint(dst, uint64(len(v))), v...)
		}
	}
	return dst
}

// A Folder folds the values that are merged into a store: heads of records, rows, row groups,
// groups of accounts, and groups of strings. It holds the scratch space
// of a fold; only one goroutine at a time may use it.
type Folder struct {
	rows   rowFolder
	groups rowGroupFolder
	chunks chunkFolder
}

// Folded is the size of a folded value. The writer decides by it whether to spill the value.
type Folded struct {
	// Entries counts the records of a chunk, or the members of a row, including those kept
	// as removed; of a row group, those of the largest. 0 for values that are never spilled.
	Entries int
	// Bytes is the length of a chunk's byte form; 0 for other values.
	Bytes int
}

// Fold appends to dst the value that the values of a key, oldest first, come to. base says
// that there is no older value (kv.Merger). An error means that a value is malformed, or that
// the values of the key's keyspace do not fold (ErrKeyspace): a keyspace that is not listed
// here must not be folded as if it were another.
func (f *Folder) Fold(dst, key []byte, values [][]byte, base bool) (out []byte, size Folded, err error) {
	if len(key) == 0 {
		return nil, size, fmt.Errorf("%w: the key is empty", ErrKeyspace)
	}
	switch key[0] {
	case KeyRecord:
		out, size, err = f.chunks.fold(dst, key, values, base)
	case KeyReverse:
		subject, n := dict.ReadID(key[min(2, len(key)):])
		if n == 0 {
			return nil, size, fmt.Errorf("format: set key %x is malformed", key)
		}
		out, size.Entries, err = f.rows.fold(dst, subject, values, base)
	case KeyRows:
		out, size.Entries, err = f.foldGroup(dst, key, values, base)
	case KeyAccount:
		out, err = foldAccounts(dst, values)
	case dict.KeyString:
		out, err = dict.FoldGroups(dst, values)
	default:
		err = fmt.Errorf("%w: %q (%s)", ErrKeyspace, key[0], KeyspaceOf(key))
	}
	return out, size, err
}
