package consumer

import (
	"cmp"
	"slices"
	"time"

	"skein.blue/consumer/proof"
	"skein.blue/graph/batch"
)

// A numbering decides by sequence numbers which events of a stream to accept. The
// numbers grow, and have holes. Repeated and older events are dropped. But a number
// may also be damaged or forged: if one that is far too high were believed, it would become the
// cursor, and all later events would be dropped. Therefore:
//
//   - an event that jumps implausibly far ahead is held. If the numbering continues where it was,
//     the event is refuted and dropped. If confirmEvents events in a row continue from it, the
//     relay's numbering has jumped, and all of them are accepted. If neither happens for
//     jumpHold, the event is dropped, and the consumer reconnects from the cursor;
//   - while no number is known yet, the first events are held in the same way, until
//     confirmEvents of them agree. After firstHold they are accepted anyway, but without their numbers: there is
//     still no cursor;
//   - a number over maxSeq is never believed.
//
// The cursor does not cover held events: after a crash the relay sends them again.
type numbering struct {
	last batch.Seq // of the last accepted event; 0: none is known
	runs []run     // the held events, in the order of arrival
}

// run is a list of held events; each continues the one before.
type run struct {
	seqs     []batch.Seq
	frames   []held
	since    time.Time
	accepted bool // the frames were accepted, without their numbers
}

// held is a message that is held, and the Verifier's ruling when it came: a second check would
// use the account's current key, which may have changed since.
type held struct {
	frame  []byte
	ruling proof.Ruling
}

func (r *run) first() batch.Seq { return r.seqs[0] }
func (r *run) last() batch.Seq  { return r.seqs[len(r.seqs)-1] }

// dropped returns the numbers of the events that are dropped with the run: those not
// yet accepted.
func (r *run) dropped() []batch.Seq { return r.seqs[len(r.seqs)-len(r.frames):] }

const (
	// implausibleJump is the distance from which a jump must be confirmed.
	implausibleJump = 1_000_000
	// confirmEvents is how many events in a row establish a new numbering.
	confirmEvents = 4
	// maxSeq is the largest integer that every implementation of the protocol can
	// read: the limit of JavaScript, and so of the reference PDS.
	maxSeq = 1<<53 - 1
	// maxRuns bounds the number of held runs.
	maxRuns = 4

	// firstHold and jumpHold are how long the first events, and those after a jump, are held.
	firstHold = time.Second
	jumpHold  = 10 * time.Second
)

// decision says what to do with events: frames are the held ones to accept, in this order; refuted
// has the numbers of those that were dropped.
type decision struct {
	accept  bool // the offered event, after frames
	old     bool // the offered event is dropped: its number is not above one already taken
	late    int  // number of held events dropped as old: those of runs that began after the accepted run, but have lower numbers
	frames  []held
	refuted []batch.Seq
	// unnumbered says not to believe the numbers of the frames.
	unnumbered bool
	jumped     bool      // the relay's numbering has jumped
	from       batch.Seq // with jumped: the last number before the jump
}

// newest returns the number of the last accepted event, or, if there is none yet, of
// the last held one.
func (n *numbering) newest() batch.Seq {
	if n.last == 0 && len(n.runs) > 0 {
		return n.runs[len(n.runs)-1].last()
	}
	return n.last
}

func continues(last, seq batch.Seq) bool { return seq > last && seq-last < implausibleJump }

// advance accepts an event that merely continues the stream, as nearly all do, and
// reports whether it did. Other events go to offer.
func (n *numbering) advance(seq batch.Seq) bool {
	if n.last == 0 || !continues(n.last, seq) || len(n.runs) > 0 || seq > maxSeq {
		return false
	}
	n.last = seq
	return true
}

// offer decides about an event. It copies frame if it holds the event.
func (n *numbering) offer(seq batch.Seq, frame []byte, ruled proof.Ruling, now time.Time) (v decision) {
	switch {
	case seq > maxSeq:
		v.refuted = []batch.Seq{seq}
		return v
	case n.last > 0 && continues(n.last, seq):
		n.last, v.accept = seq, true
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
	r.seqs, r.frames = append(r.seqs, seq), append(r.frames, held{slices.Clone(frame), ruled})
	if r.accepted {
		r.since = now // of the frames not yet accepted
		r.accepted = false
	}
	if len(r.seqs) >= confirmEvents {
		n.believe(i, &v)
	}
	return v
}

// believe accepts a run, and the runs that came before it and lie below it. Runs
// above it are refuted.
func (n *numbering) believe(i int, v *decision) {
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

// expire decides about runs that have been held for too long.
func (n *numbering) expire(now time.Time) (v decision) {
	switch {
	case len(n.runs) == 0:
	case n.last > 0:
		n.runs = slices.DeleteFunc(n.runs, func(r run) bool {
			over := now.Sub(r.since) >= jumpHold
			if over {
				v.refuted = append(v.refuted, r.seqs...)
			}
			return over
		})
	case slices.ContainsFunc(n.runs, func(r run) bool { return !r.accepted && now.Sub(r.since) >= firstHold }):
		return n.takeUnnumbered()
	}
	return v
}

// takeUnnumbered accepts the held events if no number is known yet, and keeps waiting
// for one.
func (n *numbering) takeUnnumbered() (v decision) {
	if n.last > 0 {
		return v
	}
	v.unnumbered = true
	for i := range n.runs {
		v.frames = append(v.frames, n.runs[i].frames...)
		n.runs[i].frames, n.runs[i].accepted = nil, true
	}
	return v
}

// settle decides about the held events at the end of the stream. If a number is known, all are
// dropped. Otherwise the longest run is accepted; of equally long runs the lowest, because that drops
// nothing that may follow.
func (n *numbering) settle() (v decision) {
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

// forget drops the held events, and returns their numbers.
func (n *numbering) forget() (seqs []batch.Seq) {
	for i := range n.runs {
		seqs = append(seqs, n.runs[i].seqs...)
	}
	n.runs = nil
	return seqs
}
