package format

import (
	"math/bits"
	"time"
)

// Partitions are some of those of a store: a bit for each.
type Partitions uint64

// AllPartitions returns the partitions of a store that has n.
func AllPartitions(n uint8) Partitions { return 1<<max(1, n) - 1 } // of 64, all bits

// Has reports whether a partition is one of them.
func (p Partitions) Has(part uint8) bool { return p>>part&1 != 0 }

// First returns the lowest of them, 64 if there is none.
func (p Partitions) First() uint8 { return uint8(bits.TrailingZeros64(uint64(p))) }

// Len returns how many they are.
func (p Partitions) Len() int { return bits.OnesCount64(uint64(p)) }

// Lowest returns the lowest n of them, or all if there are fewer.
func (p Partitions) Lowest(n int) (low Partitions) {
	for ; n > 0 && p != 0; n-- {
		low |= p & -p
		p &= p - 1
	}
	return low
}

// Each returns them in ascending order.
func (p Partitions) Each(yield func(part uint8) bool) {
	for ; p != 0 && yield(p.First()); p &= p - 1 {
	}
}

// A ClaimRow is a writer's claim of partitions, under its random token: a fence. Every write reads its writer's claim, so a
// writer stops writing once another has deleted it. A live writer renews its heartbeat, a separate row that writes do not
// read.
type ClaimRow struct {
	Owner string     `json:"owner"`
	Since time.Time  `json:"since"`
	Parts Partitions `json:"parts"` // 0: it waits for some
}

// ClaimKey returns the key of the claim of the writer with a token.
func ClaimKey(token []byte) []byte { return append([]byte{KeyClaim}, token...) }

// HeartbeatKey returns the key of the heartbeat of the writer with a token.
func HeartbeatKey(token []byte) []byte { return append([]byte{KeyHeartbeat}, token...) }
