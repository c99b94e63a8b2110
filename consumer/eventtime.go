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

	last    []byte    // the last plausible time, as its event spelled it
	checked time.Time // the last time that was compared with the stream's position and found plausible
	recent  [9]int64
	n       int

	first   []int64   // times of the first events
	arrived time.Time // when the first event arrived
}

const (
	// maxSkew is how far a time may lie outside the plausible range.
	maxSkew = 2 * time.Minute
	// nearly is how far a time may lie from one that was checked to be plausible without a check, as nearly all are.
	nearly = 10 * time.Second
	// maxTimeLen bounds the text of a time. batch.Seen ignores longer ones, and the event
	// would then be stored with the time of the event before it.
	maxTimeLen = 63
	// firstEvents is the number of events that method began waits for, to tell when the run
	// began to receive the stream; firstWait bounds the wait.
	firstEvents = 16
	firstWait   = 30 * time.Second
)

// usable returns the time to use for an event: its own if that is plausible, else the last
// plausible one. The result is valid until the next call.
func (e *eventTimes) usable(text []byte) []byte {
	var t time.Time
	if len(text) > maxTimeLen || t.UnmarshalText(text) != nil {
		return e.last
	}
	e.recent[e.n%len(e.recent)] = t.UnixMicro()
	e.n++
	if len(e.first) < firstEvents {
		if e.arrived.IsZero() {
			e.arrived = e.now()
		}
		e.first = append(e.first, t.UnixMicro())
	}
	if len(e.first) < firstEvents || t.Sub(e.checked).Abs() > nearly {
		if !e.plausible(t) {
			return e.last
		}
		e.checked = t
	}
	e.last = append(e.last[:0], text...)
	return text
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
// of the first events, because the machine's clock may be wrong; of few events, the later
// of that median and the arrival of the first event.
func (e *eventTimes) began() (at time.Time, known bool) {
	if e.arrived.IsZero() || len(e.first) < firstEvents && e.now().Sub(e.arrived) < firstWait {
		return time.Time{}, false
	}
	median := time.UnixMicro(medianOf(slices.Clone(e.first)))
	if len(e.first) >= firstEvents/2 || e.arrived.Before(median) {
		return median, true
	}
	return e.arrived, true
}

// medianOf sorts times and returns the median, the lower of two.
func medianOf(micros []int64) int64 {
	slices.Sort(micros)
	return micros[(len(micros)-1)/2]
}
