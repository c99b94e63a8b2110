package read

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// MaxDeadLetters is the most dead letters, and the most gaps, that a store keeps: the newest.
const MaxDeadLetters = 10_000

// DeadLetters returns the newest MaxDeadLetters dead letters, by source and seq.
func DeadLetters(r kv.Reader) ([]format.DeadLetter, error) {
	all, err := readNotes[format.DeadLetter](r, format.KeyDeadLetter)
	return newest(all, func(d *format.DeadLetter) time.Time { return d.Time }), err
}

// Gaps returns the newest MaxDeadLetters gaps, by source and seq.
func Gaps(r kv.Reader) ([]format.Gap, error) {
	all, err := readNotes[format.Gap](r, format.KeyGap)
	return newest(all, func(g *format.Gap) time.Time { return g.Time }), err
}

// newest drops the oldest of more than MaxDeadLetters notes.
func newest[T any](all []T, at func(*T) time.Time) []T {
	if len(all) <= MaxDeadLetters {
		return all
	}
	times := make([]time.Time, len(all))
	for i := range all {
		times[i] = at(&all[i])
	}
	slices.SortFunc(times, time.Time.Compare)
	from := times[len(times)-MaxDeadLetters]
	return slices.DeleteFunc(all, func(n T) bool { return at(&n).Before(from) })
}

func readNotes[T any](r kv.Reader, keyspace byte) (all []T, err error) {
	err = kv.ScanPrefix(r, []byte{keyspace}, func(k, v []byte) error {
		var n T
		if err := json.Unmarshal(v, &n); err != nil {
			return fmt.Errorf("reading note %x: %w", k, err)
		}
		all = append(all, n)
		return nil
	})
	return all, err
}
