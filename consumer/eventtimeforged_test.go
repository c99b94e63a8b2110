package consumer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// settled returns eventTimes after some events of honest hosts, the last of them at a time.
func settled(at time.Time) *eventTimes {
	e := &eventTimes{now: func() time.Time { return at }}
	for i := range 2 * firstEvents {
		e.usable([]byte(at.Add(time.Duration(i-2*firstEvents+1) * time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z")))
	}
	return e
}

// A time is not believed if it is in another zone than it seems, no time at all, or so long that a batch does not keep it.
func TestForgedEventTimes(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 30, 5, 0, time.UTC)
	last := at.Format("2006-01-02T15:04:05.000Z")
	for text, isUsed := range map[string]bool{
		"2026-11-22T12:30:06Z":                                 true,
		"2026-11-22T12:30:06+00:00":                            true,
		"2026-11-22T13:30:06+01:00":                            true,
		"2026-11-22T12:30:06+14:00":                            false,
		"2026-11-22T12:30:06-12:00":                            false,
		"2026-11-22T12:30":                                     false,
		"2026-11-22T12:30 tomorrow":                            false,
		"2026-11-22T12:30:06." + strings.Repeat("1", 42) + "Z": true,
		"2026-11-22T12:30:06." + strings.Repeat("1", 43) + "Z": false,
		"2026-11-22T12:30:" + strings.Repeat("0", 1<<16):       false,
		"": false,
	} {
		want := last
		if isUsed {
			want = text
		}
		e := settled(at)
		if got := string(e.usable([]byte(text))); got != want {
			t.Errorf("%.80q yields %.80q, want %.80q", text, got, want)
		}
		// The next event is not affected.
		next := at.Add(2 * time.Second).Format("2006-01-02T15:04:05.000Z")
		if got := string(e.usable([]byte(next))); got != next {
			t.Errorf("after %.80q, %q yields %.80q", text, next, got)
		}
	}
}

// Whatever hosts send, the result is a time near the position of the stream, short enough for a
// batch, or empty while there is none.
func TestUsableTimesArePlausible(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		at := time.Date(2026, 11, 22, 12, 30, 5, 0, time.UTC)
		e := settled(at)
		for range 300 {
			at = at.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
			now := at
			e.now = func() time.Time { return now }
			honest := []byte(at.Format("2006-01-02T15:04:05.000Z"))
			text := []byte(string(honest))
			switch rng.IntN(6) {
			case 0: // damaged
				for range 1 + rng.IntN(3) {
					text[rng.IntN(len(text))] = byte(rng.IntN(256))
				}
			case 1: // cut
				text = text[:rng.IntN(len(text))]
			case 2: // another zone
				text = fmt.Appendf(text[:len(text)-1], "%+03d:%02d", rng.IntN(29)-14, rng.IntN(60))
			case 3: // longer
				text = append(text[:len(text)-1], strings.Repeat("7", rng.IntN(80))+"Z"...)
			}
			got := e.usable(text)
			var is time.Time
			if err := is.UnmarshalText(got); err != nil || len(got) > maxTimeLen {
				t.Fatalf("seed %d: %q yields %q: %v", seed, text, got, err)
			}
			if d := is.Sub(at).Abs(); d > maxSkew+10*time.Second {
				t.Fatalf("seed %d: %q yields %q, %v from the stream's %s", seed, text, got, d, honest)
			}
			if got := e.usable(honest); string(got) != string(honest) {
				t.Fatalf("seed %d: after %q, %q yields %q", seed, text, honest, got)
			}
		}
	}
}
