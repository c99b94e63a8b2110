package ask

import (
	"math"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
)

// A Path is the key of a record.
type Path = format.Path

// ParsePath returns the path of a record key, and points into it.
func ParsePath(rkey []byte) Path { return format.ParsePath(rkey) }

// Timeless is the time, in microseconds or as a TID, of what has none. It is above all times.
const Timeless = math.MaxUint64

// TimeOf returns the time of a record in microseconds, Timeless if its key has none.
func TimeOf(p Path) uint64 {
	if !p.HasTime() {
		return Timeless
	}
	return MicrosOf(p.TID)
}

// MicrosOf returns the time of a TID, in microseconds since 1970.
func MicrosOf(tid uint64) uint64 { return tid >> format.ClockBits }

// A Window is a span of time.
type Window = read.Window

// EndOfTime is the To of a Window without an end.
const EndOfTime = format.EndOfTime

// WindowOf returns the Window of the times in [from, to), in microseconds since 1970.
func WindowOf(from, to int64) Window { return read.WindowOf(from, to) }

// A DateRange says which dates are wanted.
type DateRange = read.DateRange

// Undated is the date of a member whose records have to be read. Dates are in seconds since 1970.
const Undated = format.Undated

// LastDate is the last date of other members.
const LastDate = format.OneRecord - 1

// LargeSet is the number of members above which a set has dates.
const LargeSet = format.RowMax

// second is a second in microseconds.
const second = 1_000_000

// DatesBetween returns the range of the seconds that a window of times, in microseconds, has a part in.
func DatesBetween(from, to uint64) *DateRange {
	return &DateRange{First: uint32(min(from/second, Undated)), Last: uint32(min(max(from, to)/second, Undated))}
}
