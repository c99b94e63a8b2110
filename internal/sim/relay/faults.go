package relay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"skein.blue/internal/sim/network"
)

// Faults are the faults of a relay. Each happens once, some time after its start,
// except Corrupt, which happens all the time.
type Faults struct {
	Stall   time.Duration // sends nothing, and answers no pings
	StallAt time.Duration

	Repeat   time.Duration // sends the last part of the stream, of this length, once more
	RepeatAt time.Duration

	Jump   int64 // the numbering jumps by this much
	JumpAt time.Duration

	Burst   float64 // multiplies the rate
	BurstOf time.Duration
	BurstAt time.Duration

	Corrupt float64 // share of the messages that are damaged
}

// errFault is wrapped by the errors of Set.
var errFault = errors.New("must be stall=60s, repeat=60s, jump=10000000 or burst=10x5s, each with @ and a time after the start, or corrupt=0.01")

// Set adds a fault in the syntax of the command line, such as stall=60s@30s.
func (f *Faults) Set(s string) error {
	bad := func() error { return fmt.Errorf("%q: %w", s, errFault) }
	name, rest, _ := strings.Cut(s, "=")
	value, when, timed := strings.Cut(rest, "@")
	var at time.Duration
	var err error
	if timed {
		at, err = time.ParseDuration(when)
	}
	if err != nil || at < 0 || timed == (name == "corrupt") {
		return bad()
	}
	switch name {
	case "stall":
		f.Stall, err = time.ParseDuration(value)
		f.StallAt = at
	case "repeat":
		f.Repeat, err = time.ParseDuration(value)
		f.RepeatAt = at
	case "jump":
		f.Jump, err = strconv.ParseInt(value, 10, 64)
		f.JumpAt = at
	case "burst":
		times, of, _ := strings.Cut(value, "x")
		f.BurstOf, err = time.ParseDuration(of)
		if err == nil {
			f.Burst, err = strconv.ParseFloat(times, 64)
		}
		f.BurstAt = at
	case "corrupt":
		f.Corrupt, err = strconv.ParseFloat(value, 64)
	default:
		return bad()
	}
	if err != nil || f.Stall < 0 || f.Repeat < 0 || f.Jump < 0 || f.Burst < 0 || f.BurstOf < 0 || f.Corrupt < 0 || f.Corrupt > 1 {
		return bad()
	}
	return nil
}

// List returns each fault in the syntax of Set.
func (f *Faults) List() (all []string) {
	if f.Stall > 0 {
		all = append(all, fmt.Sprintf("stall=%v@%v", f.Stall, f.StallAt))
	}
	if f.Repeat > 0 {
		all = append(all, fmt.Sprintf("repeat=%v@%v", f.Repeat, f.RepeatAt))
	}
	if f.Jump > 0 {
		all = append(all, fmt.Sprintf("jump=%d@%v", f.Jump, f.JumpAt))
	}
	if f.Burst > 0 {
		all = append(all, fmt.Sprintf("burst=%vx%v@%v", f.Burst, f.BurstOf, f.BurstAt))
	}
	if f.Corrupt > 0 {
		all = append(all, fmt.Sprintf("corrupt=%v", f.Corrupt))
	}
	return all
}

// NeedRate reports whether a fault happens at a certain time, so that the relay
// needs a rate.
func (f *Faults) NeedRate() bool { return f.Stall > 0 || f.Repeat > 0 || f.Jump > 0 || f.Burst > 0 }

// passed returns how much of the time since the start counts for the rate, and
// whether the relay stalls now. After a stall, the relay sends all its events at
// once.
func (f *Faults) passed(d time.Duration) (counts time.Duration, stalled bool) {
	if f.Burst > 0 && d > f.BurstAt {
		d += time.Duration(float64(min(d-f.BurstAt, f.BurstOf)) * (f.Burst - 1))
	}
	return d, f.Stall > 0 && d > f.StallAt && d < f.StallAt+f.Stall
}

// eventAt returns the last event before a time at an undisturbed rate.
func eventAt(from int64, rate float64, at time.Duration) int64 {
	return from + int64(at.Seconds()*rate)
}

// Seq returns the sequence number of event i of a relay that started after event
// from.
func (f *Faults) Seq(from int64, rate float64, i int64) int64 {
	if f.Jump > 0 && i > eventAt(from, rate, f.JumpAt) {
		return i + f.Jump
	}
	return i
}

// Event returns the last event whose sequence number is not above seq.
func (f *Faults) Event(from int64, rate float64, seq int64) int64 {
	if at := eventAt(from, rate, f.JumpAt); f.Jump > 0 && seq > at {
		return max(at, seq-f.Jump)
	}
	return seq
}

// repeats moves a reader back, once, and reports whether it did.
func (f *Faults) repeats(from int64, rate float64, c *simulatedFeed) bool {
	at := eventAt(from, rate, f.RepeatAt)
	if f.Repeat == 0 || c.repeated || c.next <= at {
		return false
	}
	c.repeated = true
	c.r.mu.Lock()
	c.next = max(c.r.tail, at-int64(f.Repeat.Seconds()*rate), 1)
	c.live = false
	c.r.mu.Unlock()
	return true
}

// Damage is the damage to a message.
type Damage uint8

// The kinds of damage.
const (
	Whole     Damage = iota
	Truncated        // cut off somewhere
	Garbage          // random bytes
	BadCommit        // a flipped bit in the commit block
	BadRecord        // a flipped bit in the first record
)

const hitSecret = 0x5ca1ab1e

// Hit reports whether the message of an event is damaged.
func (f *Faults) Hit(event int64) bool {
	return f.Corrupt > 0 && float64(network.Mix(uint64(event)^hitSecret)>>11)/(1<<53) < f.Corrupt
}

// Damage returns the damage to an event's message, which depends only on the event.
func (f *Faults) Damage(e *network.Event) Damage {
	if !f.Hit(e.Seq) {
		return Whole
	}
	r := network.Mix(uint64(e.Seq) ^ hitSecret)
	d := Truncated + Damage(network.Mix(r)%4)
	if d >= BadCommit && e.Type != network.Commit {
		return Garbage
	}
	if d == BadRecord && e.Action == network.Delete {
		return BadCommit
	}
	return d
}

// damage returns the damaged message.
func (f *Faults) damage(c *encoder, e *network.Event, m []byte) []byte {
	r := network.Mix(uint64(e.Seq) ^ 0xfa17)
	switch f.Damage(e) {
	case Truncated:
		return m[:r%uint64(len(m))]
	case Garbage:
		m = m[:1+r%200%uint64(len(m))]
		for i := range m {
			r = network.Mix(r)
			m[i] = byte(r) | 0x1c // an invalid CBOR item
		}
	case BadCommit:
		m[c.commitAt] ^= 1 << (r % 8)
	case BadRecord:
		m[c.recordAt] ^= 1 << (r % 8)
	default:
	}
	return m
}
