package consumer

import (
	"slices"
	"time"
)

// eventTimes decides which event times are plausible. The host that made an event sets its
// time, and relays pass it on: some are years off, and some may be forged. A time is
// plausible if it lies between the position of the stream (the median of the last events) and
// the present, give or take two minutes. Decisions depend only on plausible times, or on
// several that agree.
type eventTimes struct {
	now func() time.Time

	minute string // of the last plausible time, as text
	last   []byte // the last plausible time, as its event spelled it
	micros int64  // the plausible time that set minute, in Unix microseconds
	recent [9]int64
	n      int

	first   []int64   // times of the first events
	arrived time.Time // when the first event arrived
}

const (
	// maxSkew is how far a time may lie outside the plausible range.
	maxSkew = 2 * time.Minute
	// minuteLen is the length of 2006-01-02T15:04.
	minuteLen = 16
	// maxTimeLen bounds the text of a time. batch.Seen ignores longer ones, and the event
	// would then be stored with the time of the event before it.
	maxTimeLen = 63
	// firstEvents is the number of events that method began waits for, to tell when the run
	// began to receive the stream; firstWait bounds the wait.
	firstEvents = 16
	firstWait   = 30 * time.Second
)

// usable returns the time to use for an event: its own if that is plausible, else the last
// plausible one. The result is valid until the next call. It is fast because most events
// have the same minute as the one before, and need only a comparison of sixteen bytes.
func (e *eventTimes) usable(text []byte) []byte {
	if len(text) > maxTimeLen {
		return e.last
	}
	isUTC := len(text) >= minuteLen && isSecondsUTC(text[minuteLen:])
	if isUTC && string(text[:minuteLen]) == e.minute && len(e.first) == firstEvents {
		e.note(e.micros)
		e.last = append(e.last[:0], text...)
		return text
	}
	var t time.Time
	if t.UnmarshalText(text) != nil {
		return e.last
	}
	now := e.now()
	if e.arrived.IsZero() {
		e.arrived = now
	}
	if len(e.first) < firstEvents {
		e.first = append(e.first, t.UnixMicro())
	}
	e.note(t.UnixMicro())
	if !e.plausible(t) {
		return e.last
	}
	e.minute = ""
	if isUTC { // with an offset, the same text before it is another minute
		e.minute, e.micros = string(text[:minuteLen]), t.UnixMicro()
	}
	e.last = append(e.last[:0], text...)
	return text
}

// isSecondsUTC reports whether text is the rest of a time after the minute, like :05.678Z.
func isSecondsUTC(text []byte) bool {
	n := len(text) - 1
	if n < 3 || text[0] != ':' || text[1] < '0' || text[1] > '5' || text[n] != 'Z' || n > 3 && (n == 4 || text[3] != '.') {
		return false
	}
	for i := 2; i < n; i++ {
		if i != 3 && (text[i] < '0' || text[i] > '9') {
			return false
		}
	}
	return true
}

func (e *eventTimes) note(micros int64) {
	e.recent[e.n%len(e.recent)] = micros
	e.n++
}

// plausible reports whether a time lies between the position of the stream and the present.
func (e *eventTimes) plausible(t time.Time) bool {
	if e.n == 0 {
		return true
	}
	position, latest := e.span()
	return !t.Before(position.Add(-maxSkew)) && !t.After(latest.Add(maxSkew))
}

// span returns the position of the stream, and the present: the clock may be behind the stream.
func (e *eventTimes) span() (position, present time.Time) {
	present = e.now()
	if e.n == 0 {
		return present, present
	}
	position = time.UnixMicro(medianOf(slices.Clone(e.recent[:min(e.n, len(e.recent))])))
	if position.After(present) {
		present = position
	}
	return position, present
}

// began returns when this run began to receive the stream, if that is known: the median time
// of the first events if they agree, because the machine's clock may be wrong; else the later
// of that median and the arrival of the first event.
func (e *eventTimes) began() (at time.Time, known bool) {
	if e.arrived.IsZero() || len(e.first) < firstEvents && e.now().Sub(e.arrived) < firstWait {
		return time.Time{}, false
	}
	first := slices.Clone(e.first)
	median := time.UnixMicro(medianOf(first))
	agree := 0
	for _, micros := range first {
		if d := time.UnixMicro(micros).Sub(median); d.Abs() <= maxSkew {
			agree++
		}
	}
	if len(first) >= firstEvents/2 && 4*agree >= 3*len(first) || e.arrived.Before(median) {
		return median, true
	}
	return e.arrived, true
}

// medianOf sorts times and returns the median, the lower of two.
func medianOf(micros []int64) int64 {
	slices.Sort(micros)
	return micros[(len(micros)-1)/2]
}
