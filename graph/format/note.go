package format

import (
	"encoding/binary"
	"time"
)

// NoteNumber is the number under which a writer notes things of a source.
func NoteNumber(source uint32, first uint8) uint32 { return source&0xffffff | uint32(first)<<24 }

// NumberOf returns the number that the key of a note begins with.
func NumberOf(key []byte) uint32 {
	if len(key) < 5 {
		return 0
	}
	return binary.BigEndian.Uint32(key[1:])
}

// NoteKey is that of a note: its place in the stream of a source, and what tells it
// from others there.
func NoteKey(keyspace byte, source uint32, seq Seq, rest string) []byte {
	k := binary.BigEndian.AppendUint32([]byte{keyspace}, source)
	k = binary.BigEndian.AppendUint64(k, uint64(seq))
	return append(k, rest...)
}

// A Seq is a relay's sequence number. 0 is none.
type Seq int64

// A DeadLetter is a piece of input that was dropped.
type DeadLetter struct {
	Source string    `json:"source"`
	Seq    Seq       `json:"seq"` // of the event, or of the last one before it that had one
	DID    string    `json:"did,omitempty"`
	Path   string    `json:"path,omitempty"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// A Gap is a place in the stream where something may be missing.
type Gap struct {
	Source string `json:"source"`
	After  Seq    `json:"after"` // the last seq before it; 0 if none is known
	Reason string `json:"reason"`
	// Time is when it was noticed. What is missing happened between Since, where
	// that is known, and then.
	Time  time.Time `json:"time"`
	Since time.Time `json:"since,omitzero"`
	// Suspect says that any repo may have changed in the gap: what the index has
	// of each is to be compared with what its host has.
	Suspect bool `json:"suspect,omitempty"`
	// Detail says more, for an operator.
	Detail string `json:"detail,omitempty"`
}

// Place tells the gaps after one seq apart: a part of the stream that is read
// again finds the same ones.
func (g *Gap) Place() string {
	if g.Reason == KindAdded {
		return g.Reason + " " + g.Detail
	}
	if g.Since.IsZero() {
		return g.Reason
	}
	return g.Reason + " " + g.Since.UTC().Format(time.RFC3339Nano)
}

// SourceOfNote returns the number of the source that NoteNumber was given.
func SourceOfNote(number uint32) uint32 { return number & 0xffffff }

// KindAdded is the reason of the gap that is recorded for every source when a store is
// opened by the first program that indexes a kind: what was made of it before is not in
// the store. Its detail names the collections.
const KindAdded = "kind_added"
