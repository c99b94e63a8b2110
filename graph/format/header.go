package format

import (
	"encoding/binary"
	"fmt"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Header says what a store is. It is the first row that is written to a store, and the
// first that is read. Under HeaderKey lies, from FormatOneHeader on,
//
//	version(1) ShardBits(1) LeaseSize(4, big-endian) Partitions(1) n(1) n × Kind(1)
//
// The kinds are all that were ever indexed in the store, ascending.
//
// Before, the row held the version alone, and the settings lay under OldSettingsKey:
// 2 (1) ShardBits(1) LeaseSize(4), and Partitions(1) if not 1.
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

// UpgradeKey is the key of the progress of a migration (package upgrade).
var UpgradeKey = []byte("mupgrade")

// UpgradeTallyKey is the key of what a migration has counted so far.
var UpgradeTallyKey = []byte("mupgradetally")

// OldSettingsKey is the key of a store's settings before FormatOneHeader.
var OldSettingsKey = []byte("mintern")

// Append appends the value of the row.
func (h *Header) Append(dst []byte) []byte {
	dst = append(dst, byte(h.Version), h.Settings.ShardBits)
	dst = binary.BigEndian.AppendUint32(dst, h.Settings.LeaseSize)
	dst = append(dst, h.Settings.Partitions, byte(len(h.Kinds)))
	for _, k := range h.Kinds {
		dst = append(dst, byte(k))
	}
	return dst
}

// upgrading replaces the version while a store is being migrated. The older header follows.
const upgrading = 0xff

// AppendUpgrading appends the header of a store that is being migrated from the header before.
func AppendUpgrading(dst, before []byte) []byte { return append(append(dst, upgrading), before...) }

// UpgradingHeader returns the header that a store had before the migration that is under way,
// or nil if none is.
func UpgradingHeader(v []byte) (before []byte) {
	if len(v) > 1 && v[0] == upgrading {
		return v[1:]
	}
	return nil
}

// HeaderVersion returns the version that a value of HeaderKey names.
func HeaderVersion(v []byte) (Version, error) {
	if len(v) == 0 {
		return 0, fmt.Errorf("format: the store's header is empty")
	}
	return Version(v[0]), nil
}

// DecodeHeader reads the value of HeaderKey in a store of the Newest version.
func DecodeHeader(v []byte) (h Header, err error) { return DecodeHeaderOf(Newest, v) }

// DecodeHeaderOf reads the value of HeaderKey in a store of another version, from
// FormatOneHeader on.
func DecodeHeaderOf(version Version, v []byte) (h Header, err error) {
	const fixed = 8
	if len(v) < fixed || len(v) != fixed+int(v[fixed-1]) || Version(v[0]) != version {
		return h, fmt.Errorf("format: the store's header is malformed: %x", v)
	}
	h.Version = version
	h.Settings = dict.Settings{ShardBits: v[1], LeaseSize: binary.BigEndian.Uint32(v[2:]), Partitions: v[6]}
	for _, k := range v[fixed:] {
		h.Kinds = append(h.Kinds, kinds.Kind(k))
	}
	if !slices.IsSorted(h.Kinds) || len(slices.Compact(slices.Clone(h.Kinds))) != len(h.Kinds) {
		return h, fmt.Errorf("format: the store's header is malformed: %x", v)
	}
	return h, h.Settings.Check()
}

// DecodeOldSettings reads the value of OldSettingsKey.
func DecodeOldSettings(v []byte) (s dict.Settings, err error) {
	if len(v) != 6 && len(v) != 7 || v[0] != 2 {
		return s, fmt.Errorf("format: the store's settings are malformed: %x", v)
	}
	s = dict.Settings{ShardBits: v[1], LeaseSize: binary.BigEndian.Uint32(v[2:]), Partitions: 1}
	if len(v) == 7 {
		s.Partitions = v[6]
	}
	return s, s.Check()
}
