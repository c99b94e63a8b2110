package format

import (
	"encoding/binary"
	"time"
)

// NoteNumber returns the number of a source in the notes of a writer, whose first partition
// is given.
func NoteNumber(source uint32, first uint8) uint32 { return source&0xffffff | uint32(first)<<24 }

// NumberOf returns the NoteNumber in the key of a note.
func NumberOf(key []byte) uint32 {
	if len(key) < 5 {
		return 0
	}
	return binary.BigEndian.Uint32(key[1:])
}

// NoteKey returns the key of a note: its place in the stream of a source, and the rest, which
// distinguishes it from other notes there.
func NoteKey(keyspace byte, source uint32, seq Seq, rest string) []byte {
	k := binary.BigEndian.AppendUint32([]byte{keyspace}, source)
	k = binary.BigEndian.AppendUint64(k, uint64(seq))
	return append(k, rest...)
}

// A Seq is a relay's sequence number; 0 means none.
type Seq int64

// A DeadLetter is a malformed piece of input that was dropped.
type DeadLetter struct {
	Source string    `json:"source"`
	Seq    Seq       `json:"seq"` // of the event, or of the last numbered one before it
	DID    string    `json:"did,omitempty"`
	Path   string    `json:"path,omitempty"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
	// Detail is for an operator.
	Detail string `json:"detail,omitempty"`
}

// A Gap is a place in the stream where events may be missing.
type Gap struct {
	Source string `json:"source"`
	After  Seq    `json:"after"` // the last seq before it; 0 if unknown
	Reason string `json:"reason"`
	// Time is when the gap was noticed. The missing events happened after Since, if it is
	// known, and before Time.
	Time  time.Time `json:"time"`
	Since time.Time `json:"since,omitzero"`
	// Suspect says that any repo may have changed in the gap, so each must be compared with
	// what the network has of it.
	Suspect bool `json:"suspect,omitempty"`
	// Detail is for an operator.
	Detail string `json:"detail,omitempty"`
}

// Place distinguishes the gaps after one seq. Reading a part of the stream again finds gaps
// with the same places.
func (g *Gap) Place() string {
	if g.Since.IsZero() {
		return g.Reason
	}
	return g.Reason + " " + g.Since.UTC().Format(time.RFC3339Nano)
}

// SourceOfNote returns the number of the source in a NoteNumber.
func SourceOfNote(number uint32) uint32 { return number & 0xffffff }

// KindAdded is the reason why a repo is fetched again because the store has no older records of a new kind.
const KindAdded = "kind_added"

// NeverHeard is the reason why a repo is fetched that a comparison found, and that the stream never brought.
const NeverHeard = "unknown"
