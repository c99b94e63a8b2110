package format

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A CursorRow is how far a source was applied: number(4) seq(8) time, unix microseconds(8) flags(1). The number
// stands for the source in other rows. A new one is drawn when the relay is known
// to have begun its sequence anew. The time is that of the event seq; with
// cursorLive, which a source has until its first event is applied, it is when
// listening began, and seq is 0.
type CursorRow struct {
	Number uint32
	Seq    Seq
	Time   time.Time
	Future bool // the relay said that seq is in its future
	Live   bool // listened to live, and no event has been applied yet
	Exact  bool // time is that of the event seq, as it stood there
}

// Flags of a cursor row.
const (
	cursorFuture = 1 << iota
	cursorLive
	cursorExact
)

// IsCursor reports whether the row says how far the source was applied.
func (c CursorRow) IsCursor() bool { return c.Number != 0 && !c.Live }

// Covers reports whether an event of the source has been applied, by its number.
func (c CursorRow) Covers(seq Seq) bool { return c.Number != 0 && seq <= c.Seq && !c.Future }

// Value returns the row.
func (c CursorRow) Value() []byte {
	v := binary.BigEndian.AppendUint32(nil, c.Number)
	v = binary.BigEndian.AppendUint64(v, uint64(c.Seq))
	v = binary.BigEndian.AppendUint64(v, uint64(c.Time.UnixMicro()))
	flags := byte(0)
	if c.Future {
		flags |= cursorFuture
	}
	if c.Live {
		flags |= cursorLive
	}
	if c.Exact {
		flags |= cursorExact
	}
	return append(v, flags)
}

// DecodeCursor reads a row.
func DecodeCursor(v []byte) (c CursorRow, err error) {
	if len(v) != 21 {
		return c, fmt.Errorf("format: cursor row %x is malformed", v)
	}
	c.Number = binary.BigEndian.Uint32(v)
	c.Seq = Seq(binary.BigEndian.Uint64(v[4:]))
	c.Time = time.UnixMicro(int64(binary.BigEndian.Uint64(v[12:])))
	c.Future, c.Live, c.Exact = v[20]&cursorFuture != 0, v[20]&cursorLive != 0, v[20]&cursorExact != 0
	return c, nil
}

// A Cursor says how far a source has been applied.
type Cursor struct {
	Source string    `json:"source"`
	Seq    Seq       `json:"seq"`  // the last event applied
	Time   time.Time `json:"time"` // of that event
	// Future says that the source called this cursor one in its future: its
	// sequence has begun anew.
	Future bool `json:"future,omitempty"`
	// Exact says that Time is just that of the event: it tells the event from another of the
	// same number, of a sequence that has begun anew.
	Exact bool `json:"-"`
}
