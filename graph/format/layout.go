package format

import (
	"encoding/binary"
	"fmt"
	"math/bits"
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

// leavesMark precedes the partition and the last member in the key of a leaf. It is above all partitions.
const leavesMark = 0xff

// partWidth is how many bytes a partition takes in a key: none, if there is only one.
func (l Layout) partWidth() int {
	if l.Shared() {
		return 1
	}
	return 0
}

// appendPart appends a partition.
func (l Layout) appendPart(dst []byte, part uint8) []byte {
	return append(dst, part)[:len(dst)+l.partWidth()]
}

// AppendMembersKey appends the prefix of the keys of the values that have the rows of a set: rows, or their groups.
func (l Layout) AppendMembersKey(dst []byte, k kinds.Kind, subject dict.ID) []byte {
	if HasGroups(k) {
		mask := dict.ID(1)<<(bits.Len16(l.Settings.Group)/2) - 1 // the bits that distinguish the subjects of a group
		return dict.AppendID(append(dst, KeyRows, byte(k)), subject&^mask)
	}
	return AppendRowKey(dst, k, subject)
}

// RowsOf returns the bounds of these keys; if there is one for all members, this key, and nil. The key is appended to dst.
func (l Layout) RowsOf(dst []byte, k kinds.Kind, subject dict.ID) (lo, hi []byte) {
	if lo = l.AppendMembersKey(dst, k, subject); l.partWidth() > 0 {
		hi = Leaves(lo)
	}
	return lo, hi
}

// AppendMemberKey appends the key of the value that has the row with a member of a set: the row itself, or its group.
func (l Layout) AppendMemberKey(dst []byte, k kinds.Kind, subject, member dict.ID) []byte {
	return l.appendPart(l.AppendMembersKey(dst, k, subject), l.Settings.PartitionOfID(member))
}

// RowOf returns the row of a subject in a value under its AppendMemberKey.
func RowOf(k kinds.Kind, subject dict.ID, v []byte) ([]byte, error) {
	if HasGroups(k) {
		return RowIn(v, subject)
	}
	return v, nil
}

// AppendSetLeafKey appends the key of a leaf of a set, given the last member that belongs to it. The leaf that a member belongs to is the first
// whose key, among those of the member's partition, is not below the member's own.
func (l Layout) AppendSetLeafKey(dst []byte, k kinds.Kind, subject, last dict.ID) []byte {
	return dict.AppendID(l.appendPart(append(AppendRowKey(dst, k, subject), leavesMark), l.Settings.PartitionOfID(last)), last)
}

// LeavesBeside returns the prefix of the keys of the leaves in the same set and partition as the key of one.
func (l Layout) LeavesBeside(leaf []byte) []byte {
	_, n := dict.ReadID(leaf[2:])
	n += len("vk\xff") + l.partWidth()
	return leaf[:n:n]
}

// Leaves returns the prefix of the keys of a set's leaves. set is the prefix of all keys of the set.
func Leaves(set []byte) []byte { return append(slices.Clone(set), leavesMark) }

// ParseSetKey returns the parts of the key of a row, or of a leaf: of a leaf, the last member that belongs to it.
func (l Layout) ParseSetKey(key []byte) (k kinds.Kind, subject dict.ID, part uint8, last dict.ID, isLeaf bool, err error) {
	bad := func() (kinds.Kind, dict.ID, uint8, dict.ID, bool, error) {
		return 0, 0, 0, 0, false, fmt.Errorf("format: set key %x is malformed, or not of this store's layout", key)
	}
	if len(key) < 2 || key[0] != KeyReverse {
		return bad()
	}
	k = kinds.Kind(key[1])
	subject, n := dict.ReadID(key[2:])
	rest := key[2+n:]
	if n == 0 {
		return bad()
	}
	if isLeaf = len(rest) > 0 && rest[0] == leavesMark; isLeaf {
		rest = rest[1:]
	}
	if w := l.partWidth(); w > 0 {
		if len(rest) < w || rest[0] >= l.Settings.Partitions {
			return bad()
		}
		part, rest = rest[0], rest[w:]
	}
	if isLeaf {
		if last, n = dict.ReadID(rest); n == 0 {
			return bad()
		}
		rest = rest[n:]
	}
	if len(rest) > 0 || !isLeaf && HasGroups(k) || isLeaf && l.Settings.PartitionOfID(last) != part {
		return bad()
	}
	return k, subject, part, last, isLeaf, nil
}

// PartKey returns the key of a partition's own row of a kind.
func PartKey(key []byte, part uint8) []byte { return append(slices.Clone(key), part) }

// PieceKey returns the key of the piece of such a row that begins at an offset.
func PieceKey(key []byte, part uint8, at int) []byte {
	return binary.BigEndian.AppendUint32(PartKey(key, part), uint32(at))
}

// CursorKey returns the key of a source's cursor in a partition.
func CursorKey(part uint8, source string) []byte { return append([]byte{KeyCursor, part}, source...) }

// AccountKey appends the key of the group that has an account's state.
func (l Layout) AccountKey(dst []byte, actor dict.ID) []byte {
	return dict.AppendID(append(dst, KeyAccount), actor&^l.AccountMask())
}

// AccountMask covers the bits of an id that distinguish the accounts of a group.
func (l Layout) AccountMask() dict.ID { return dict.ID(max(l.Settings.Group, 1)) - 1 }

// IsOfPartition reports whether a key is that of a partition's row of a set, or of a group of such rows.
func IsOfPartition(key []byte) bool {
	if len(key) < 2 || key[0] != KeyReverse && key[0] != KeyRows {
		return false
	}
	_, n := dict.ReadID(key[2:])
	return len(key) > 2+n
}

// PartitionOfKey returns the partition that a head, or the row of a set or its group, belongs to.
func (l Layout) PartitionOfKey(key []byte) uint8 {
	id, n := dict.ReadID(key[2:])
	switch {
	case key[0] == KeyRecord:
		return l.Settings.PartitionOfID(id)
	case len(key) > 2+n:
		return key[2+n]
	}
	return 0
}
