package consumer

import (
	"slices"
	"time"
)

// eventTimes decides which times of events are believed. An event's time is the word of
// whichever host sent it, and relays pass it on: some are years off, and one may be meant to
// mislead. A time is believed that lies between what the stream has come to (the median of
// the last events) and the present, give or take two minutes. What is decided by a time is
// decided by the believed ones, or by several that agree.
type eventTimes struct {
	now func() time.Time

	minute string // of the last that was believed, as text
	last   []byte // that time, as it stood in its event
	micros int64  // and as a number, to the minute
	recent [9]int64
	n      int

	first   []int64   // the times of the first events
	arrived time.Time // when the first came
}

const (
	// believable is by how much a time may differ from those that it should agree with.
	believable = 2 * time.Minute
	// minuteLen is the length of 2006-01-02T15:04.
	minuteLen = 16
	// firstEvents is from how many events it is told when the stream was begun to be heard,
	// and firstWait how long that many are waited for.
	firstEvents = 16
	firstWait   = 30 * time.Second
)

// take returns the time that an event is taken to be of: its own, if that is believed, else
// the last one that was. It is valid until the next call. Most events are of the same minute
// as the one before, and cost a comparison of sixteen bytes.
func (e *eventTimes) take(text []byte) []byte {
	if len(text) >= minuteLen && string(text[:minuteLen]) == e.minute && len(e.first) == firstEvents {
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
	e.minute, e.micros = string(text[:minuteLen]), t.UnixMicro()
	e.last = append(e.last[:0], text...)
	return text
}

func (e *eventTimes) note(micros int64) {
	e.recent[e.n%len(e.recent)] = micros
	e.n++
}

// plausible reports whether a time lies between what the stream has come to and the present.
func (e *eventTimes) plausible(t time.Time) bool {
	if e.n == 0 {
		return true
	}
	recent := slices.Clone(e.recent[:min(e.n, len(e.recent))])
	median := time.UnixMicro(medianOf(recent))
	latest := median
	if now := e.now(); now.After(latest) {
		latest = now
	}
	return !t.Before(median.Add(-believable)) && !t.After(latest.Add(believable))
}

// began returns when the stream was begun to be heard, and whether that is known: the time of
// its first events, if they agree, because the machine's clock may be wrong; else when the
// first came here, or what the middle one says, whichever is later.
func (e *eventTimes) began() (at time.Time, known bool) {
	if e.arrived.IsZero() || len(e.first) < firstEvents && e.now().Sub(e.arrived) < firstWait {
		return time.Time{}, false
	}
	first := slices.Clone(e.first)
	median := time.UnixMicro(medianOf(first))
	agree := 0
	for _, micros := range first {
		if d := time.UnixMicro(micros).Sub(median); d.Abs() <= believable {
			agree++
		}
	}
	if len(first) >= firstEvents/2 && 4*agree >= 3*len(first) || e.arrived.Before(median) {
		return median, true
	}
	return e.arrived, true
}

// medianOf sorts times and returns the one in the middle, the lower of two.
func medianOf(micros []int64) int64 {
	slices.Sort(micros)
	return micros[(len(micros)-1)/2]
}
