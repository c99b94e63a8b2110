package format

import (
	"time"

	"skein.blue/intern/dict"
)

// A ClaimRow is a writer's claim of a partition, and a fencing token. Every write reads its
// writer's claims, so a writer stops writing once another takes over its partitions. A live
// writer renews its heartbeat, a separate row that writes do not read.
//
// To learn whether the owner of an old claim is alive, a process watches the heartbeat for a
// while. It does not compare clocks.
type ClaimRow struct {
	Token  []byte           `json:"token"`
	Owner  string           `json:"owner"`
	Since  time.Time        `json:"since"`
	Shards *dict.ShardRange `json:"shards,omitempty"`
}

// ClaimKey returns the key of the claim of a partition.
func ClaimKey(part uint8) []byte { return []byte{KeyClaim, part} }

// HeartbeatKey returns the key of the heartbeat of the claim with a token.
func HeartbeatKey(token []byte) []byte { return append([]byte{KeyHeartbeat}, token...) }
