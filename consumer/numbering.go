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
	held []held    // in the order of arrival
}

// held is an event that is held, with the Verifier's ruling when it came: a second check would
// use the account's current key, which may have changed since.
type held struct {
	seq    batch.Seq
	frame  []byte
	ruling proof.Ruling
	since  time.Time
	taken  bool // it was accepted, without its number
}

const (
	// implausibleJump is the distance from which a jump must be confirmed.
	implausibleJump = 1_000_000
	// confirmEvents is how many events in a row establish a new numbering.
	confirmEvents = 4
	// maxSeq is the largest integer that every implementation of the protocol can
	// read: the limit of JavaScript, and so of the reference PDS.
	maxSeq = 1<<53 - 1
	// maxHeld bounds the number of held events.
	maxHeld = 16

	// firstHold and jumpHold are how long the first events, and those after a jump, are held.
	firstHold = time.Second
	jumpHold  = 10 * time.Second
)

// decision says what to do with events: frames are the held ones to accept, in this order; refuted
// has the numbers of those that were dropped.
type decision struct {
	accept  bool // the offered event, after frames
	old     bool // the offered event is dropped: its number is not above one already taken
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
	if n.last == 0 && len(n.held) > 0 {
		return n.held[len(n.held)-1].seq
	}
	return n.last
}

func continues(last, seq batch.Seq) bool { return seq > last && seq-last < implausibleJump }

// advance accepts an event that merely continues the stream, as nearly all do, and
// reports whether it did. Other events go to offer.
func (n *numbering) advance(seq batch.Seq) bool {
	if n.last == 0 || !continues(n.last, seq) || len(n.held) > 0 || seq > maxSeq {
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
		n.last, v.accept, v.refuted = seq, true, n.forget()
		return v
	case seq <= n.last || slices.ContainsFunc(n.held, func(h held) bool { return h.seq == seq }):
		v.old = true
		return v
	}
	if len(n.held) == maxHeld {
		v.refuted, n.held = refute(n.held[:1]), n.held[1:]
	}
	n.held = append(n.held, held{seq: seq, frame: slices.Clone(frame), ruling: ruled, since: now})
	if n.row(len(n.held)-1) >= confirmEvents {
		n.believe(seq, &v)
	}
	return v
}

// row returns how many of the held events are in a row, up to the i-th.
func (n *numbering) row(i int) (length int) {
	next := n.held[i].seq
	for _, h := range slices.Backward(n.held[:i]) {
		if continues(h.seq, next) {
			length++
			next = h.seq
		}
	}
	return length + 1
}

// believe accepts the held events up to a number. Those above it are refuted.
func (n *numbering) believe(seq batch.Seq, v *decision) {
	v.jumped, v.from = n.last > 0, n.last
	slices.SortFunc(n.held, func(x, y held) int { return cmp.Compare(x.seq, y.seq) })
	above := slices.IndexFunc(n.held, func(h held) bool { return h.seq == seq }) + 1
	v.refuted = append(v.refuted, refute(n.held[above:])...)
	v.frames = slices.DeleteFunc(n.held[:above], func(h held) bool { return h.taken })
	n.last, n.held = seq, nil
}

// expire decides about events that have been held for too long.
func (n *numbering) expire(now time.Time) (v decision) {
	switch {
	case n.last > 0 && len(n.held) > 0 && now.Sub(n.held[0].since) >= jumpHold:
		v.refuted = n.forget()
	case slices.ContainsFunc(n.held, func(h held) bool { return !h.taken && now.Sub(h.since) >= firstHold }):
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
	for i := range n.held {
		if h := &n.held[i]; !h.taken {
			v.frames = append(v.frames, *h)
			h.frame, h.taken = nil, true
		}
	}
	return v
}

// settle decides about the held events at the end of the stream. If a number is known, all are
// dropped. Otherwise those up to the end of the longest row are accepted; of equally long rows the lowest, because that drops
// nothing that may follow.
func (n *numbering) settle() (v decision) {
	if n.last > 0 || len(n.held) == 0 {
		return decision{refuted: n.forget()}
	}
	best := 0
	for i := range n.held {
		if c := cmp.Compare(n.row(i), n.row(best)); c > 0 || c == 0 && n.held[i].seq < n.held[best].seq {
			best = i
		}
	}
	n.believe(n.held[best].seq, &v)
	return v
}

// forget drops the held events, and returns their numbers.
func (n *numbering) forget() []batch.Seq {
	all := n.held
	n.held = nil
	return refute(all)
}

// refute returns the numbers of the events that were not accepted without them.
func refute(all []held) (seqs []batch.Seq) {
	for _, h := range all {
		if !h.taken {
			seqs = append(seqs, h.seq)
		}
	}
	return seqs
}
