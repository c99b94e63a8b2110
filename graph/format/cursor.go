package format

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// A CursorRow records the progress of a source:
// number(4) seq(8) time, unix microseconds(8) flags(1). Other rows name the source by its
// number. It gets a new number when its relay has restarted its sequence. The time is the
// time of event seq. Until the first event is applied, the row has cursorLive: then the time
// is when listening began, and seq is 0.
type CursorRow struct {
	Number uint32
	Seq    Seq
	Time   time.Time
	Future bool // the relay said that seq is in its future
	Live   bool // listening has begun, and no event has been applied yet
	Exact  bool // Time is exactly the time that event seq named
}

// Flags of a cursor row.
const (
	cursorFuture = 1 << iota
	cursorLive
	cursorExact
)

// IsCursor reports whether an event of the source was applied.
func (c CursorRow) IsCursor() bool { return c.Number != 0 && !c.Live }

// Covers reports whether the event with a number has been applied.
func (c CursorRow) Covers(seq Seq) bool { return c.Number != 0 && seq <= c.Seq && !c.Future }

// Value returns the row.
func (c CursorRow) Value() []byte {
	v := binary.BigEndian.AppendUint32(nil, c.Number)
	v = binary.BigEndian.AppendUint64(v, uint64(c.Seq))
	v = binary.BigEndian.AppendUint64(v, uint64(c.Time.UnixMicro()))
	return append(v, flagsOf(c.Future, c.Live, c.Exact))
}

// flagsOf returns a byte whose lowest bits say which of the values are true, the first in bit 0.
func flagsOf(values ...bool) (flags byte) {
	for i, is := range values {
		if is {
			flags |= 1 << i
		}
	}
	return flags
}

// DecodeCursor reads a row.
func DecodeCursor(v []byte) (c CursorRow, err error) {
	if len(v) != 21 || v[20] > cursorFuture|cursorLive|cursorExact {
		return c, fmt.Errorf("format: cursor row %x is malformed", v)
	}
	c.Number = binary.BigEndian.Uint32(v)
	c.Seq = Seq(binary.BigEndian.Uint64(v[4:]))
	c.Time = time.UnixMicro(int64(binary.BigEndian.Uint64(v[12:])))
	c.Future, c.Live, c.Exact = v[20]&cursorFuture != 0, v[20]&cursorLive != 0, v[20]&cursorExact != 0
	return c, nil
}

// A Cursor is the progress of a source.
type Cursor struct {
	Source string    `json:"source"`
	Seq    Seq       `json:"seq"`  // the last event applied
	Time   time.Time `json:"time"` // of that event
	// Future says that the source rejected this cursor as one in its future: its sequence
	// has restarted.
	Future bool `json:"future,omitempty"`
	// Exact says that Time is exactly the time that the event named. It distinguishes the
	// event from one with the same number in a restarted sequence.
	Exact bool `json:"exact,omitempty"`
}

// IsStream reports whether the source is a stream: an archive is not, nor are fetched repos, which have no name.
func (c Cursor) IsStream() bool {
	return c.Source != "" && !strings.HasPrefix(c.Source, RosterArchive)
}
