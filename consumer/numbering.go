package consumer

import (
	"cmp"
	"slices"
	"time"

	"skein.blue/graph/format"
)

// A numbering decides which events of a stream are taken, by their sequence
// numbers. They only grow, and have holes. What is repeated or older is dropped.
// But a number may also be damaged, or a lie: to believe one that is far too high
// would be to drop all that follows, and to store it as the cursor. So
//
//   - an event that jumps implausibly far ahead is held. If the numbering goes on
//     where it was, the event is refuted and dropped. If confirming events in a row
//     continue from it, the relay's numbering has jumped, and all of them are
//     taken. If neither happens for jumpTime, it is dropped, and the relay asked
//     again from the cursor;
//   - where no number is known yet, the first events are held in the same way,
//     until so many agree. After firstTime they are taken all the same, but their
//     numbers are not believed until then: there is no cursor yet;
//   - a number over maxSeq is never believed.
//
// What is held is not in the cursor: after a crash the relay sends it again.
type numbering struct {
	last format.Seq // taken; 0: none is known
	runs []run      // what is held, in the order of arrival
}

// run is a list of events each of which continues the one before.
type run struct {
	seqs   []format.Seq
	frames [][]byte
	since  time.Time
	taken  bool // the frames were taken, without their numbers
}

func (r *run) first() format.Seq { return r.seqs[0] }
func (r *run) last() format.Seq  { return r.seqs[len(r.seqs)-1] }

// dropped returns the numbers of the events that are dropped with the run: those that
// were not taken.
func (r *run) dropped() []format.Seq { return r.seqs[len(r.seqs)-len(r.frames):] }

const (
	// implausibleJump is a distance that no relay's numbering jumps in one step.
	implausibleJump = 1_000_000
	// confirming is how many events in a row a new numbering takes.
	confirming = 4
	// maxSeq is the largest integer that every implementation of the protocol
	// reads: JavaScript's, and so that of the reference PDS.
	maxSeq = 1<<53 - 1
	// maxRuns bounds what is held.
	maxRuns = 4

	firstTime = time.Second
	jumpTime  = 10 * time.Second
)

// verdict says what becomes of events: frames are to be taken, in this order;
// refuted are the numbers of those that were dropped.
type verdict struct {
	take    bool // the event that was offered, after frames
	old     bool // it came before
	late    int  // so many that were held had come before
	frames  [][]byte
	refuted []format.Seq
	// unnumbered says that the frames' numbers are not believed.
	unnumbered bool
	jumped     bool // the relay's numbering has jumped
	from       format.Seq
}

// newest returns the last number that was taken, or if there is none yet the last
// one that is held.
func (n *numbering) newest() format.Seq {
	if n.last == 0 && len(n.runs) > 0 {
		return n.runs[len(n.runs)-1].last()
	}
	return n.last
}

func continues(last, seq format.Seq) bool { return seq > last && seq-last < implausibleJump }

// goesOn takes an event that merely continues the stream, which nearly all do. The
// others are to be offered.
func (n *numbering) goesOn(seq format.Seq) bool {
	if n.last == 0 || !continues(n.last, seq) || len(n.runs) > 0 || seq > maxSeq {
		return false
	}
	n.last = seq
	return true
}

// offer takes in an event. frame is copied if it is kept.
func (n *numbering) offer(seq format.Seq, frame []byte, now time.Time) (v verdict) {
	switch {
	case seq > maxSeq:
		v.refuted = []format.Seq{seq}
		return v
	case n.last > 0 && continues(n.last, seq):
		n.last, v.take = seq, true
		if len(n.runs) > 0 {
			v.refuted = n.forget()
		}
		return v
	case seq <= n.last:
		v.old = true
		return v
	}
	i := slices.IndexFunc(n.runs, func(r run) bool { return seq >= r.first() && seq < r.last()+implausibleJump })
	switch {
	case i >= 0 && seq <= n.runs[i].last():
		v.old = true
		return v
	case i < 0:
		if len(n.runs) == maxRuns {
			v.refuted = n.runs[0].dropped()
			n.runs = n.runs[1:]
		}
		i = len(n.runs)
		n.runs = append(n.runs, run{since: now})
	}
	r := &n.runs[i]
	r.seqs, r.frames = append(r.seqs, seq), append(r.frames, slices.Clone(frame))
	if r.taken {
		r.since = now // of the frames that were not
		r.taken = false
	}
	if len(r.seqs) >= confirming {
		n.believe(i, &v)
	}
	return v
}

// believe takes a run, and what came before it and lies below it. What lies above
// it is refuted.
func (n *numbering) believe(i int, v *verdict) {
	r := n.runs[i]
	v.jumped, v.from = n.last > 0, n.last
	below := []run{r}
	for j, other := range n.runs {
		switch {
		case j == i:
		case other.first() > r.last():
			v.refuted = append(v.refuted, other.dropped()...)
		case j < i:
			below = append(below, other)
		default:
			v.late += len(other.frames)
		}
	}
	slices.SortFunc(below, func(x, y run) int { return cmp.Compare(x.first(), y.first()) })
	for _, b := range below {
		v.frames = append(v.frames, b.frames...)
	}
	n.last, n.runs = r.last(), nil
}

// expire decides what has been held for too long.
func (n *numbering) expire(now time.Time) (v verdict) {
	switch {
	case len(n.runs) == 0:
	case n.last > 0:
		n.runs = slices.DeleteFunc(n.runs, func(r run) bool {
			over := now.Sub(r.since) >= jumpTime
			if over {
				v.refuted = append(v.refuted, r.seqs...)
			}
			return over
		})
	case slices.ContainsFunc(n.runs, func(r run) bool { return !r.taken && now.Sub(r.since) >= firstTime }):
		return n.takeUnnumbered()
	}
	return v
}

// takeUnnumbered takes what is held where no number is known, and goes on waiting
// for one.
func (n *numbering) takeUnnumbered() (v verdict) {
	if n.last > 0 {
		return v
	}
	v.unnumbered = true
	for i := range n.runs {
		v.frames = append(v.frames, n.runs[i].frames...)
		n.runs[i].frames, n.runs[i].taken = nil, true
	}
	return v
}

// settle decides what is held where nothing more will come. Of two runs of the
// same length the lower one is taken, which drops nothing that may follow.
func (n *numbering) settle() (v verdict) {
	if n.last > 0 || len(n.runs) == 0 {
		v.refuted = n.forget()
		return v
	}
	best := 0
	for i := range n.runs {
		r, b := &n.runs[i], &n.runs[best]
		if len(r.seqs) > len(b.seqs) || len(r.seqs) == len(b.seqs) && r.first() < b.first() {
			best = i
		}
	}
	n.believe(best, &v)
	return v
}

// forget empties what is held, and returns its numbers.
func (n *numbering) forget() (seqs []format.Seq) {
	for i := range n.runs {
		seqs = append(seqs, n.runs[i].seqs...)
	}
	n.runs = nil
	return seqs
}
