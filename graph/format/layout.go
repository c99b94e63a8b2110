package format

import (
	"bytes"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Layout says how the keys look that depend on the store's settings.
type Layout struct{ Settings dict.Settings }

// Shared reports whether several processes may write the store.
func (l Layout) Shared() bool { return l.Settings.Partitions > 1 }

// containersMark stands before the blocks of a set in several partitions.
const containersMark = 0xff

// AppendMemberKey appends the key of the row that a member of a set belongs in.
func (l Layout) AppendMemberKey(dst []byte, k kinds.Kind, subject, member dict.ID) []byte {
	dst = AppendRowKey(dst, k, subject)
	if l.Shared() {
		dst = append(dst, l.Settings.PartitionOfID(member))
	}
	return dst
}

// Containers returns the prefix of the keys of a set's containers, of which set
// is the prefix of all keys.
func (l Layout) Containers(set []byte) []byte {
	if !l.Shared() {
		return set
	}
	return append(slices.Clone(set), containersMark)
}

// PartKey returns the key of what each partition has its own of.
func (l Layout) PartKey(key []byte, part uint8) []byte {
	if !l.Shared() {
		return key
	}
	return append(slices.Clone(key), part)
}

// CursorKey is that of the cursor of a source in a partition.
func (l Layout) CursorKey(part uint8, source string) []byte {
	if !l.Shared() {
		return append([]byte{KeyCursor}, source...)
	}
	return append([]byte{KeyCursor, 0, part}, source...)
}

// AccountKey appends the key of the group that an account's state lies in.
func (l Layout) AccountKey(dst []byte, actor dict.ID) []byte {
	return dict.AppendID(append(dst, KeyAccount), actor&^l.AccountMask())
}

// AccountMask covers the bits of an id that tell the accounts of a group apart.
func (l Layout) AccountMask() dict.ID {
	if l.Shared() {
		return 0
	}
	return 1<<accountBits - 1
}

// PartitionOfKey returns the partition that a chunk, or the row of a set, belongs to.
func (l Layout) PartitionOfKey(key []byte) uint8 {
	id, n := dict.ReadID(key[2:])
	switch {
	case key[0] == KeyRecord:
		return l.Settings.PartitionOfID(id)
	case l.Shared() && len(key) > 2+n:
		return key[2+n]
	}
	return 0
}

// FitsReverseKey reports whether a key of a row, or of a container, is one of this
// layout: with a partition, or the mark of containers, where several processes write.
func (l Layout) FitsReverseKey(key []byte, isRow bool) bool {
	_, n := dict.ReadID(key[2:])
	rest := key[2+n:]
	switch {
	case isRow && l.Shared():
		return len(rest) == 1 && rest[0] < l.Settings.Partitions
	case isRow:
		return len(rest) == 0
	}
	return l.Shared() == ((len(rest) == 4 || len(rest) == 8) && rest[0] == containersMark)
}

// FitsCursorKey reports whether the key of a cursor is one of this layout.
func (l Layout) FitsCursorKey(key []byte) bool {
	return len(key) > 1 && l.Shared() == (len(key) > 2 && key[1] == 0)
}

// FitsTotalsKey reports whether a key of the keyspace of totals is one of this layout.
func (l Layout) FitsTotalsKey(key []byte) bool {
	for _, one := range [][]byte{HeaderKey, KeySecret, KeyKinds, KeyLacking, KeyImport, UpgradeKey} {
		if bytes.Equal(key, one) {
			return true
		}
	}
	for _, each := range [][]byte{KeyCounts, KeyHidden, KeyWriter, KeyBackfill} {
		if rest, ok := bytes.CutPrefix(key, each); ok {
			return len(rest) == 0 && !l.Shared() || len(rest) == 1 && l.Shared() && rest[0] < l.Settings.Partitions
		}
	}
	return false
}
