package format

import (
	"skein.blue/intern/dict"
)

// A Hiding has the accounts whose hiding or showing made a version of a partition's hidden accounts, so that a reader with an older set
// needs only what was changed since. The newest HidingRing are kept.
type Hiding struct {
	Version       uint64
	Hidden, Shown []dict.ID `json:",omitempty"`
}

// HidingRing is how many Hidings a partition has, HidingMax how many accounts one has: a write with more makes several versions.
const (
	HidingRing = 256
	HidingMax  = 2000
)

// HidingKey returns the key of the Hiding that made a version.
func HidingKey(part uint8, version uint64) []byte {
	return append(PartKey(KeyHiding, part), byte(version%HidingRing))
}
