package format

import (
	"encoding/binary"
	"fmt"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Version is that of the format of everything in a store: this package's keys and
// values, and package dict's. A store of another one is not read; skein upgrade
// brings an older one up to date.
const Version = 6

// A Header says what a store is: the first row that is made in it, and the first
// that is read. It lies under HeaderKey:
//
//	version(1) ShardBits(1) LeaseSize(4, big-endian) Partitions(1) n(1) n × Kind(1)
//
// The kinds are those that have been indexed in the store, ascending.
//
// Up to version 3 the row held the version alone, and the settings lay under
// OldSettingsKey: 2 (1) ShardBits(1) LeaseSize(4), and Partitions(1) if not 1.
type Header struct {
	Version  uint8
	Settings dict.Settings
	Kinds    []kinds.Kind
	// Table has the rows of the Kinds, and of what is built in besides. It is not part of
	// this row of the store: those that are not built in are under KeyKinds.
	Table *kinds.Table
}

// HeaderKey is the key of the Header. Every store has it from its first write on.
var HeaderKey = []byte("mgraph")

// UpgradeKey is that of how far a step of package upgrade came.
var UpgradeKey = []byte("mupgrade")

// UpgradeTallyKey is that of what a step of package upgrade has counted.
var UpgradeTallyKey = []byte("mupgradetally")

// OldSettingsKey is that of the settings of a store before version 4.
var OldSettingsKey = []byte("mintern")

// Append appends the value of the row.
func (h *Header) Append(dst []byte) []byte {
	dst = append(dst, h.Version, h.Settings.ShardBits)
	dst = binary.BigEndian.AppendUint32(dst, h.Settings.LeaseSize)
	dst = append(dst, h.Settings.Partitions, byte(len(h.Kinds)))
	for _, k := range h.Kinds {
		dst = append(dst, byte(k))
	}
	return dst
}

// upgrading stands in the place of the version while a store is being brought up to
// date. The header before follows it.
const upgrading = 0xff

// AppendUpgrading appends the header of a store that is being brought up to date.
func AppendUpgrading(dst, before []byte) []byte { return append(append(dst, upgrading), before...) }

// UpgradingHeader returns the header that a store had before it was begun to be brought
// up to date, nil if that is not under way.
func UpgradingHeader(v []byte) (before []byte) {
	if len(v) > 1 && v[0] == upgrading {
		return v[1:]
	}
	return nil
}

// HeaderVersion returns the version of the format that a value of HeaderKey names.
func HeaderVersion(v []byte) (version uint8, err error) {
	if len(v) == 0 {
		return 0, fmt.Errorf("format: the store's header is empty")
	}
	return v[0], nil
}

// DecodeHeader reads the value of HeaderKey in a store of this Version.
func DecodeHeader(v []byte) (h Header, err error) { return HeaderOf(Version, v) }

// HeaderOf is DecodeHeader of a store of another version, from 4 on.
func HeaderOf(version uint8, v []byte) (h Header, err error) {
	const fixed = 8
	if len(v) < fixed || len(v) != fixed+int(v[fixed-1]) || v[0] != version {
		return h, fmt.Errorf("format: the store's header is malformed: %x", v)
	}
	h.Version = v[0]
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
