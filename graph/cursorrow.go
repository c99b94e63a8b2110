package graph

import (
	"encoding/binary"
	"fmt"
	"time"
)

// A cursor row is number(4) seq(8) time, unix microseconds(8) flags(1). The number
// stands for the source in other rows. A new one is drawn when the relay is known
// to have begun its sequence anew. The time is that of the event seq; with
// cursorLive, which a source has until its first event is applied, it is when
// listening began, and seq is 0.
type cursorRow struct {
	number uint32
	seq    Seq
	time   time.Time
	future bool // the relay said that seq is in its future
	live   bool // listened to live, and no event has been applied yet
}

// Flags of a cursor row.
const (
	cursorFuture = 1 << iota
	cursorLive
)

// isCursor reports whether the row says how far the source was applied.
func (c cursorRow) isCursor() bool { return c.number != 0 && !c.live }

func (c cursorRow) value() []byte {
	v := binary.BigEndian.AppendUint32(nil, c.number)
	v = binary.BigEndian.AppendUint64(v, uint64(c.seq))
	v = binary.BigEndian.AppendUint64(v, uint64(c.time.UnixMicro()))
	flags := byte(0)
	if c.future {
		flags |= cursorFuture
	}
	if c.live {
		flags |= cursorLive
	}
	return append(v, flags)
}

func decodeCursor(v []byte) (c cursorRow, err error) {
	if len(v) != 21 {
		return c, fmt.Errorf("graph: cursor row %x is malformed", v)
	}
	c.number = binary.BigEndian.Uint32(v)
	c.seq = Seq(binary.BigEndian.Uint64(v[4:]))
	c.time = time.UnixMicro(int64(binary.BigEndian.Uint64(v[12:])))
	c.future, c.live = v[20]&cursorFuture != 0, v[20]&cursorLive != 0
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
}
