package read

import (
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// DeadLetters returns the dead letters that the store keeps, by source and seq.
func DeadLetters(r kv.Reader) ([]format.DeadLetter, error) {
	return readNotes[format.DeadLetter](r, format.KeyDeadLetter)
}

// Gaps returns the gaps that the store keeps, by source and seq.
func Gaps(r kv.Reader) ([]format.Gap, error) { return readNotes[format.Gap](r, format.KeyGap) }

func readNotes[T any](r kv.Reader, keyspace byte) (all []T, err error) {
	err = kv.ScanPrefix(r, []byte{keyspace}, func(k, v []byte) error {
		n, err := format.FromJSON[T](v)
		if err != nil {
			return fmt.Errorf("reading note %x: %w", k, err)
		}
		all = append(all, n)
		return nil
	})
	return all, err
}
