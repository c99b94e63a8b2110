package format

import (
	"time"

	"skein.blue/intern/dict"
)

// A ClaimRow is a claim of a partition: one that several writers could write belongs to the one whose claim
// lies under its key. Every write reads the claims of its writer, so that a
// writer whose partitions another took over writes nothing any more: the claim
// is a fencing token. Who is alive says so in a row of its own, which no write
// reads.
//
// Whether a writer that left its claim behind is alive is found out by watching
// its heartbeat for a while, and not by comparing clocks.
type ClaimRow struct {
	Token  []byte           `json:"token"`
	Owner  string           `json:"owner"`
	Since  time.Time        `json:"since"`
	Shards *dict.ShardRange `json:"shards,omitempty"`
}

// ClaimKey is that of the claim of a partition.
func ClaimKey(part uint8) []byte { return []byte{KeyClaim, part} }

// HeartbeatKey is that of the heartbeat of the claim with a token.
func HeartbeatKey(token []byte) []byte { return append([]byte{KeyHeartbeat}, token...) }
