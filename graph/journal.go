package graph

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein/internal/kv"
)

// MaxDeadLetters is how many dead letters, and gaps, are kept: the newest.
const MaxDeadLetters = 10_000

// trimSlack is how far over MaxDeadLetters the store may grow before the
// oldest are deleted, so that they are not looked for with every write.
const trimSlack = 1_000

func noteKey(keyspace byte, source uint32, seq Seq, rest string) []byte {
	k := binary.BigEndian.AppendUint32([]byte{keyspace}, source)
	k = binary.BigEndian.AppendUint64(k, uint64(seq))
	return append(k, rest...)
}

// applyNotes writes the dead letters and gaps of a batch in writes of their own,
// where one may be too large for all of them.
func (s *lane) applyNotes(ctx context.Context, source string, b *Batch) error {
	const atOnce = 500
	number := s.cursors(source)[0].number&0xffffff | uint32(s.first)<<24
	// What is not ours another writer met too.
	dead := slices.DeleteFunc(slices.Clone(b.dead), func(d DeadLetter) bool { return !s.isMine(d) })
	gaps := b.gaps
	for len(dead)+len(gaps) > 0 {
		d, g := dead[:min(len(dead), atOnce)], gaps[:min(len(gaps), atOnce)]
		err := s.update(ctx, func(tx kv.Txn) error { return writeNotes(tx, source, number, d, g) })
		if err != nil {
			return fmt.Errorf("graph: noting %d dead letters and gaps: %w", len(d)+len(g), err)
		}
		s.notes += len(d) + len(g)
		dead, gaps = dead[len(d):], gaps[len(g):]
	}
	return nil
}

// writeNotes writes dead letters and gaps. Their keys say where in the stream
// they are, so that a replay writes them over themselves.
func writeNotes(tx kv.Txn, source string, number uint32, dead []DeadLetter, gaps []Gap) error {
	for _, d := range dead {
		d.Source = source
		v, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("graph: writing a dead letter: %w", err)
		}
		path := d.Path
		if len(path) > 1024 {
			path = path[:1024] // the store's keys are bounded, and the letter has it whole
		}
		tx.Set(noteKey(keyDeadLetter, number, d.Seq, path), v)
	}
	for _, g := range gaps {
		g.Source = source
		v, err := json.Marshal(g)
		if err != nil {
			return fmt.Errorf("graph: writing a gap: %w", err)
		}
		tx.Set(noteKey(keyGap, number, g.After, g.Reason), v)
	}
	return nil
}

// isMine reports whether it is for this writer to note a dead letter: those of
// no account are noted where the first partition is written.
func (s *Store) isMine(d DeadLetter) bool {
	if d.DID == "" {
		return s.ownsPart(0)
	}
	return s.Owns([]byte(d.DID))
}

func (s *lane) writeCounts(tx kv.Txn, c Counts) error {
	v, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("graph: writing the counts: %w", err)
	}
	tx.Set(s.partKey(keyCounts, s.first), v)
	return nil
}

// trimDeadLetters deletes the oldest dead letters and gaps over the bound.
func (s *lane) trimDeadLetters(ctx context.Context) error {
	if s.notes <= MaxDeadLetters+trimSlack {
		return nil
	}
	err := s.kv.Update(ctx, func(tx kv.Txn) error {
		s.notes = 0
		for _, keyspace := range []byte{keyDeadLetter, keyGap} {
			n, err := trimNotes(tx, keyspace)
			if err != nil {
				return err
			}
			s.notes = max(s.notes, n)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("graph: trimming the dead letters: %w", err)
	}
	return nil
}

// trimNotes returns how many notes are left in the keyspace.
func trimNotes(tx kv.Txn, keyspace byte) (int, error) {
	type note struct {
		key  string
		time time.Time
	}
	var notes []note
	err := eachWithPrefix(tx.Snapshot(), []byte{keyspace}, func(k, v []byte) error {
		var n struct {
			Time time.Time `json:"time"`
		}
		if err := json.Unmarshal(v, &n); err != nil {
			return fmt.Errorf("graph: reading note %x: %w", k, err)
		}
		notes = append(notes, note{string(k), n.Time})
		return nil
	})
	if err != nil || len(notes) <= MaxDeadLetters {
		return len(notes), err
	}
	slices.SortStableFunc(notes, func(x, y note) int {
		return cmp.Or(x.time.Compare(y.time), cmp.Compare(x.key, y.key))
	})
	for _, n := range notes[:len(notes)-MaxDeadLetters] {
		tx.Delete([]byte(n.key))
	}
	return MaxDeadLetters, nil
}

// DeadLetters returns the dead letters, by source and seq.
func DeadLetters(r kv.Reader) ([]DeadLetter, error) { return readNotes[DeadLetter](r, keyDeadLetter) }

// Gaps returns the gaps, by source and seq.
func Gaps(r kv.Reader) ([]Gap, error) { return readNotes[Gap](r, keyGap) }

func readNotes[T any](r kv.Reader, keyspace byte) (all []T, err error) {
	err = eachWithPrefix(r, []byte{keyspace}, func(k, v []byte) error {
		var n T
		if err := json.Unmarshal(v, &n); err != nil {
			return fmt.Errorf("graph: reading note %x: %w", k, err)
		}
		all = append(all, n)
		return nil
	})
	return all, err
}
