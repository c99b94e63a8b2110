package consumer

import (
	"errors"
	"fmt"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// A sequence follows the numbers and the times of a source's events, from one connection to the next:
// it decides which events to accept, and notices that the source has restarted its sequence. It
// knows no connection and no store.
type sequence struct {
	numbers   numbering
	times     eventTimes    // of the accepted events
	expected  *graph.Cursor // the last applied event, requested again to check the sequence; nil once checked
	outdated  bool          // the relay has said in this session that the cursor is outdated
	restarted int           // events in a row with old numbers and a newer time
}

// errRestarted ends a session in which newer events come under older numbers.
var errRestarted = errors.New("consumer: the relay restarted its sequence: numbers at or below the cursor now belong to other events")

// errReused ends a session if its first event has the number of the cursor and about the same
// time, but is a different event.
var errReused = errors.New("consumer: the relay reused the number of the last applied event: it lost its newest events")

// reusedWithin is how close the times of two events with the same number must be to conclude
// that only the end of the sequence changed: a relay that is killed loses its last events, and
// gives their numbers to new events.
const reusedWithin = 10 * time.Minute

// verify checks that the relay's sequence is still the one of the cursor: the session
// requests the last applied event again, and it comes first. verify reports whether m
// is that event. If an event with another time has its number, the relay lost its newest events and
// gave their numbers to others (the times are close: errReused), or its sequence restarted and passed
// the cursor while nobody listened (errRestarted). If the event does not come, the cause is unknown (a PDS erases
// the events of a deleted account, and a relay its oldest ones), and verify returns a gap; after an implausible jump, missing does.
func (s *sequence) verify(m *wire.Message) (again bool, gap *batch.Gap, err error) {
	stored := s.expected
	if stored == nil || m.Seq < stored.Seq { // checked, or older than requested
		return false, nil, nil
	}
	var at time.Time
	isReadable := at.UnmarshalText(m.Time) == nil
	if m.Seq > stored.Seq {
		if !stored.Exact && isReadable && !at.After(stored.Time) { // after Rewind: what follows was applied before
			s.expected = nil
		}
		if m.Seq-stored.Seq < implausibleJump { // else it is not believed yet
			gap = s.missing(m.Seq)
		}
		return false, gap, nil
	}
	s.expected = nil
	switch {
	case !isReadable, !stored.Exact, at.UnixMicro() == stored.Time.UnixMicro():
		return true, nil, nil
	case at.Sub(stored.Time).Abs() <= reusedWithin:
		return true, nil, errReused
	}
	return true, nil, fmt.Errorf("%w: event %d was applied with the time %s, and now has %s", errRestarted, stored.Seq, stored.Time.UTC().Format(time.RFC3339Nano), at.UTC().Format(time.RFC3339Nano))
}

// missing returns the gap after the last applied event if the relay has sent later events instead of it, beginning with first.
func (s *sequence) missing(first batch.Seq) (gap *batch.Gap) {
	if stored := s.expected; stored != nil && (!s.outdated || !stored.Exact) { // else recorded already
		after := stored.Seq
		if !stored.Exact { // after Rewind, later events were applied before
			after = first - 1
		}
		gap = &batch.Gap{
			Reason: sequenceUnverified, After: after, Suspect: true, Since: stored.Time.UTC(),
			Detail: fmt.Sprintf("the relay no longer has all events from the cursor %d on: it may have deleted some, or have restarted its sequence", stored.Seq),
		}
	}
	s.expected = nil
	return gap
}

// An event with an old number that is at least restartedBy newer than the last accepted event
// is a sign of a restarted sequence; restartedEvents of them in a row prove it.
const restartedBy, restartedEvents = 10 * time.Second, 4

// repeats notes an event whose number the numbering calls old, and reports whether the sequence was
// restarted. Mostly such an event is a repetition. But not every relay says FutureCursor after it has
// restarted its sequence: then the event is newer than the last accepted one. applied is the time of
// the last applied event, in Unix microseconds.
func (s *sequence) repeats(m *wire.Message, applied int64) (isRestarted bool) {
	var newest, at time.Time
	if newest.UnmarshalText(s.times.last) != nil {
		newest = time.UnixMicro(applied)
	}
	unknown := at.UnmarshalText(m.Time) != nil || newest.Unix() <= 0 || !s.times.plausible(at)
	if unknown || at.Sub(newest) < restartedBy {
		s.restarted = 0 // a repeated event: those counted so far may have come from hosts whose clocks are ahead
		return false
	}
	s.restarted++
	return s.restarted >= restartedEvents
}
