package read_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// A note is a dead letter and a gap of one place.
type note struct {
	dead format.DeadLetter
	gap  format.Gap
}

// TestNewestNotes: all fields of notes are read; of too many notes the newest remain, with all that have the time of the
// oldest of them. They are listed by source and seq, not by time.
func TestNewestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		n     int
		times int // the number of different times
	}{
		"none":             {0, 1},
		"a few":            {30, 10},
		"just enough":      {read.MaxDeadLetters, 100_000},
		"one too many":     {read.MaxDeadLetters + 1, 100_000},
		"many":             {2*read.MaxDeadLetters + 7, 1 << 33},
		"many at one time": {read.MaxDeadLetters + 500, 30},
		"all at one time":  {read.MaxDeadLetters + 500, 1},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(test.n), 1))
			rows := map[string][]byte{}
			var times []time.Time
			notes := map[string]note{} // by key
			for i := range test.n {
				when := time.Unix(rng.Int64N(int64(test.times)), 0).UTC()
				seq := format.Seq(i * 3 % (test.n + 1))
				number := format.NoteNumber(uint32(1+rng.IntN(3)), uint8(rng.IntN(2)*32))
				reason := fmt.Sprintf("reason \"<&>\" %d", i)
				n := note{
					format.DeadLetter{Source: "relay", Seq: seq, Time: when, Reason: reason, DID: "did:plc:a", Path: "a/b", Detail: "more"},
					format.Gap{Source: "relay", After: seq, Time: when, Reason: reason, Suspect: i%2 == 0, Since: when.Add(-time.Hour), Detail: "more"},
				}
				dead, err1 := json.Marshal(n.dead)
				gap, err2 := json.Marshal(n.gap)
				if err := errors.Join(err1, err2); err != nil {
					t.Fatal(err)
				}
				key := format.NoteKey(format.KeyDeadLetter, number, seq, reason)
				rows[string(key)] = dead
				notes[string(key[1:])] = n
				key[0] = format.KeyGap
				rows[string(key)] = gap
				times = append(times, when)
			}
			slices.SortFunc(times, time.Time.Compare)
			oldest := time.Time{}
			if test.n > read.MaxDeadLetters {
				oldest = times[test.n-read.MaxDeadLetters]
			}
			var dead []format.DeadLetter
			var gaps []format.Gap
			for _, key := range slices.Sorted(maps.Keys(notes)) {
				if n := notes[key]; !n.gap.Time.Before(oldest) {
					dead, gaps = append(dead, n.dead), append(gaps, n.gap)
				}
			}
			raw(t, rows, func(r kv.Reader) {
				got, err := read.DeadLetters(r)
				gotGaps, gerr := read.Gaps(r)
				if err != nil || gerr != nil || !slices.Equal(got, dead) || !slices.Equal(gotGaps, gaps) {
					t.Errorf("%d dead letters, %d gaps, want %d: %v, %v", len(got), len(gotGaps), len(dead), err, gerr)
				}
			})
		})
	}
}

// TestMalformedNotes: an error names the note.
func TestMalformedNotes(t *testing.T) {
	for _, keyspace := range []byte{format.KeyDeadLetter, format.KeyGap} {
		key := format.NoteKey(keyspace, 2, 1, "")
		raw(t, map[string][]byte{string(key): []byte("{")}, func(r kv.Reader) {
			_, err := read.DeadLetters(r)
			if keyspace == format.KeyGap {
				_, err = read.Gaps(r)
			}
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("reading note %x", key)) {
				t.Errorf("a truncated note: %v", err)
			}
		})
	}
}
