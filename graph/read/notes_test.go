package read_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// TestNewestNotes: of too many notes the newest remain, with all that have the time of the
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
			at := map[string]time.Time{} // by key
			for i := range test.n {
				when := time.Unix(rng.Int64N(int64(test.times)), 0).UTC()
				seq := format.Seq(i * 3 % (test.n + 1))
				number := format.NoteNumber(uint32(1+rng.IntN(3)), uint8(rng.IntN(2)*32))
				reason := fmt.Sprintf("reason %d", i)
				dead, err := json.Marshal(format.DeadLetter{Seq: seq, Time: when, Reason: reason, DID: "did:plc:a", Path: "a/b"})
				if err != nil {
					t.Fatal(err)
				}
				gap, err := json.Marshal(format.Gap{After: seq, Time: when, Reason: reason, Suspect: i%2 == 0, Since: when.Add(-time.Hour)})
				if err != nil {
					t.Fatal(err)
				}
				key := format.NoteKey(format.KeyDeadLetter, number, seq, reason)
				rows[string(key)] = dead
				at[string(key[1:])] = when
				key[0] = format.KeyGap
				rows[string(key)] = gap
				times = append(times, when)
			}
			slices.SortFunc(times, time.Time.Compare)
			oldest := time.Time{}
			if test.n > read.MaxDeadLetters {
				oldest = times[test.n-read.MaxDeadLetters]
			}
			var want []string // reasons
			for _, key := range sortedKeys(at) {
				if !at[key].Before(oldest) {
					want = append(want, key[12:])
				}
			}
			raw(t, rows, func(r kv.Reader) {
				var got [2][]string
				dead, err := read.DeadLetters(r)
				for _, d := range dead {
					got[0] = append(got[0], d.Reason)
				}
				gaps, gerr := read.Gaps(r)
				for _, g := range gaps {
					got[1] = append(got[1], g.Reason)
				}
				if err != nil || gerr != nil || !slices.Equal(got[0], want) || !slices.Equal(got[1], want) {
					t.Errorf("%d dead letters, %d gaps, want %d: %v, %v", len(dead), len(gaps), len(want), err, gerr)
				}
			})
		})
	}
}

func sortedKeys(m map[string]time.Time) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestNotes: all fields of a note survive a round trip.
func TestNotes(t *testing.T) {
	at := time.Date(2025, 3, 4, 5, 6, 7, 8000, time.UTC)
	dead := format.DeadLetter{Source: "relay", Seq: 5, DID: "did:plc:a", Path: "app.bsky.feed.like/x", Reason: "bad \"<&>\"", Time: at}
	gap := format.Gap{Source: "relay", After: 7, Reason: "gap", Time: at, Since: at.Add(-time.Hour), Suspect: true, Detail: "more"}
	rows := map[string][]byte{}
	for key, note := range map[string]any{
		string(format.NoteKey(format.KeyDeadLetter, 1, 5, dead.Path)): dead,
		string(format.NoteKey(format.KeyGap, 1, 7, gap.Place())):      gap,
	} {
		value, err := json.Marshal(note)
		if err != nil {
			t.Fatal(err)
		}
		rows[key] = value
	}
	raw(t, rows, func(r kv.Reader) {
		if got, err := read.DeadLetters(r); err != nil || len(got) != 1 || got[0] != dead {
			t.Errorf("%+v, want %+v: %v", got, dead, err)
		}
		if got, err := read.Gaps(r); err != nil || len(got) != 1 || got[0] != gap {
			t.Errorf("%+v, want %+v: %v", got, gap, err)
		}
	})
	for _, keyspace := range []byte{format.KeyDeadLetter, format.KeyGap} {
		key := format.NoteKey(keyspace, 2, 1, "")
		rows[string(key)] = []byte("{")
		raw(t, rows, func(r kv.Reader) {
			_, err := read.DeadLetters(r)
			if keyspace == format.KeyGap {
				_, err = read.Gaps(r)
			}
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("reading note %x", key)) {
				t.Errorf("a truncated note: %v", err)
			}
		})
		delete(rows, string(key))
	}
}
