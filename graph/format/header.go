package format

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Header says what a store is. It is the first row that is written to a store, and the
// first that is read. Under HeaderKey lies
//
//	version(1) ShardBits(1) LeaseSize(4, big-endian) Partitions(1) logarithm of Group(1) n(1) n × Kind(1)
//
// The kinds are all that were ever indexed in the store, ascending.
type Header struct {
	Version  Version
	Settings dict.Settings
	Kinds    []kinds.Kind
	// Table describes the Kinds, and all built-in ones. It is not part of this row: the
	// store keeps the configured kinds under KeyKinds.
	Table *kinds.Table
}

// HeaderKey is the key of the Header. Every store has it from its first write on.
var HeaderKey = []byte("mgraph")

// Append appends the value of the row.
func (h *Header) Append(dst []byte) []byte {
	dst = append(dst, byte(h.Version), h.Settings.ShardBits)
	dst = binary.BigEndian.AppendUint32(dst, h.Settings.LeaseSize)
	dst = append(dst, h.Settings.Partitions, byte(bits.Len16(h.Settings.Group)-1), byte(len(h.Kinds)))
	for _, k := range h.Kinds {
		dst = append(dst, byte(k))
	}
	return dst
}

// DecodeHeader reads the value of HeaderKey in a store of the Newest version.
func DecodeHeader(v []byte) (h Header, err error) {
	const fixed = 9
	if len(v) < fixed || len(v) != fixed+int(v[fixed-1]) || Version(v[0]) != Newest || v[7] > 8 {
		return h, fmt.Errorf("format: the store's header is malformed: %x", v)
	}
	h.Version = Newest
	h.Settings = dict.Settings{ShardBits: v[1], LeaseSize: binary.BigEndian.Uint32(v[2:]), Partitions: v[6], Group: 1 << v[7]}
	for _, k := range v[fixed:] {
		h.Kinds = append(h.Kinds, kinds.Kind(k))
	}
	if !slices.IsSorted(h.Kinds) || len(slices.Compact(slices.Clone(h.Kinds))) != len(h.Kinds) {
		return h, fmt.Errorf("format: the store's header is malformed: %x", v)
	}
	return h, h.Settings.Check()
}
