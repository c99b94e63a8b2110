package format

import (
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Layout makes the keys that depend on the store's settings.
type Layout struct {
	Settings dict.Settings
}

// Shared reports whether several processes can write the store.
func (l Layout) Shared() bool { return l.Settings.Partitions > 1 }

// containersMark precedes the block in a container's key, if the store has several partitions.
const containersMark = 0xff

// AppendMemberKey appends the key of the value that has the row with a member of a set: the row itself, or its group.
func (l Layout) AppendMemberKey(dst []byte, k kinds.Kind, subject, member dict.ID) []byte {
	if l.Grouped(k) {
		return AppendRowGroupKey(dst, k, subject)
	}
	dst = AppendRowKey(dst, k, subject)
	if l.Shared() {
		dst = append(dst, l.Settings.PartitionOfID(member))
	}
	return dst
}

// RowIn returns the row of a subject in the value under its AppendMemberKey.
func (l Layout) RowIn(k kinds.Kind, subject dict.ID, v []byte) ([]byte, error) {
	if l.Grouped(k) {
		return RowIn(v, subject)
	}
	return v, nil
}

// AppendMemberContainerKey appends the key of the container that a member of a large set lies in.
func (l Layout) AppendMemberContainerKey(dst []byte, k kinds.Kind, subject, member dict.ID) []byte {
	dst = AppendRowKey(dst, k, subject)
	if l.Shared() {
		dst = append(dst, containersMark)
	}
	return AppendBlock(dst, BlockOf(uint64(member)))
}

// Containers returns the prefix of the keys of a set's containers. set is the prefix of all
// keys of the set.
func (l Layout) Containers(set []byte) []byte {
	if !l.Shared() {
		return set
	}
	return append(slices.Clone(set), containersMark)
}

// PartKey returns the key of a partition's own row of a kind.
func (l Layout) PartKey(key []byte, part uint8) []byte {
	if !l.Shared() {
		return key
	}
	return append(slices.Clone(key), part)
}

// CursorKey returns the key of a source's cursor in a partition.
func (l Layout) CursorKey(part uint8, source string) []byte {
	if !l.Shared() {
		return append([]byte{KeyCursor}, source...)
	}
	return append([]byte{KeyCursor, 0, part}, source...)
}

// AccountKey appends the key of the group that has an account's state.
func (l Layout) AccountKey(dst []byte, actor dict.ID) []byte {
	return dict.AppendID(append(dst, KeyAccount), actor&^l.AccountMask())
}

// AccountMask covers the bits of an id that distinguish the accounts of a group.
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

// FitsReverseKey reports whether the key of a row or a container belongs to this layout: in
// a shared store it has a partition, or the mark of containers.
func (l Layout) FitsReverseKey(key []byte, isRow bool) bool {
	_, n := dict.ReadID(key[2:])
	rest := key[2+n:]
	switch {
	case isRow && l.Grouped(kinds.Kind(key[1])):
		return false
	case isRow && l.Shared():
		return len(rest) == 1 && rest[0] < l.Settings.Partitions
	case isRow:
		return len(rest) == 0
	}
	return l.Shared() == ((len(rest) == 4 || len(rest) == 8) && rest[0] == containersMark)
}
