package batch

import (
	"time"

	"skein.blue/graph/format"
)

// reach is which part of the stream a batch holds.
type reach struct {
	first, last format.Seq
	time        []byte // of the last event, as it is written there
	exact       bool   // time is the event's own

	// Heard is when the stream began without a hole since, by the times of its first events; zero if that is not known.
	Heard time.Time
}

// Seen notes that everything up to seq is in the batch. Call it after each event of the
// stream that has a seq, including those that are dropped. eventTime is the event's time in
// RFC 3339; anything else counts as unknown.
func (r *reach) Seen(seq format.Seq, eventTime []byte) {
	r.last = seq
	if r.first == 0 {
		r.first = seq
	}
	if len(eventTime) < 64 {
		r.time, r.exact = append(r.time[:0], eventTime...), true
	}
}

// Inexact notes that the time given for the last event is an estimate: its own time is not
// credible.
func (r *reach) Inexact() { r.exact = false }

// First returns the first sequence number of the batch, 0 if it has none.
func (r *reach) First() format.Seq { return r.first }

// Last returns the last sequence number of the batch, 0 if it has none.
func (r *reach) Last() format.Seq { return r.last }

// Time returns the time of the last event, zero if it is not known.
func (r *reach) Time() (t time.Time) {
	if t.UnmarshalText(r.time) != nil {
		return time.Time{}
	}
	return t
}

// Exact reports whether Time is the last event's own time.
func (r *reach) Exact() bool { return r.exact }

// notes are what happened to the stream.
type notes struct {
	dead []format.DeadLetter
	gaps []format.Gap
}

// MaxNotes bounds the dead letters and the gaps in a batch, so that a flood of garbage does
// not fill the memory. Apply a batch that has reached it.
const MaxNotes = 1000

// Notes returns the number of dead letters or of gaps, whichever is larger.
func (n *notes) Notes() int { return max(len(n.dead), len(n.gaps)) }

// AddDeadLetter adds a dead letter. Its Source is set by Apply.
func (n *notes) AddDeadLetter(d format.DeadLetter) { n.dead = addNote(n.dead, d) }

// AddGap adds a gap. Its Source is set by Apply.
func (n *notes) AddGap(g format.Gap) { n.gaps = addNote(n.gaps, g) }

// DeadLetters returns the dead letters.
func (n *notes) DeadLetters() []format.DeadLetter { return n.dead }

// Gaps returns the gaps.
func (n *notes) Gaps() []format.Gap { return n.gaps }

func addNote[T any](notes []T, n T) []T {
	if len(notes) == 8*MaxNotes { // from one message
		notes = notes[:copy(notes, notes[MaxNotes:])]
	}
	return append(notes, n)
}

// beside has what events do not: each is found by the Seq of its event.
type beside struct {
	states    []Imported // of EventImport with HasState
	snapshots []Snapshot // of EventSnapshot
	outcomes  []Outcome
	causes    []Cause // of EventResync
}

// Imported returns the state that the n-th EventImport came with.
func (s *beside) Imported(n format.Seq) *Imported { return &s.states[n] }

// Cause returns why the repo of the n-th EventResync is queued.
func (s *beside) Cause(n format.Seq) *Cause { return &s.causes[n] }

// Part returns the n-th EventSnapshot, without what its event has.
func (s *beside) Part(n format.Seq) *Snapshot { return &s.snapshots[n] }

// SetOutcome sets the outcome of the n-th EventSnapshot.
func (s *beside) SetOutcome(n format.Seq, o Outcome) { s.outcomes[n] = o }

// Outcome returns what became of a snapshot, after the batch is applied.
func (s *beside) Outcome(n int) Outcome { return s.outcomes[n] }
