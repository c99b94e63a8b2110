package graph

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein/graph/format"
	"skein/graph/read"
	"skein/internal/kv"
)

// trimSlack is how far over MaxDeadLetters the store may grow before the oldest
// are deleted, so that the keys are gone through once for as many that come.
const trimSlack = read.MaxDeadLetters

// noteCounts say how many notes there are, by keyspace and the number of their
// source, of those that this writer wrote. One that is written over itself
// counts again, until they are trimmed.
type noteCounts map[byte]map[uint32]int

func (c *noteCounts) add(number uint32, dead, gaps int) {
	if *c == nil {
		*c = noteCounts{format.KeyDeadLetter: {}, format.KeyGap: {}}
	}
	(*c)[format.KeyDeadLetter][number] += dead
	(*c)[format.KeyGap][number] += gaps
}

// load counts the notes of a writer, whose first partition is first.
func (c *noteCounts) load(r kv.Reader, first uint8) error {
	*c = nil
	for keyspace, one := range map[byte][2]int{format.KeyDeadLetter: {1, 0}, format.KeyGap: {0, 1}} {
		err := kv.ScanPrefix(r, []byte{keyspace}, func(k, _ []byte) error {
			if number := format.NumberOf(k); uint8(number>>24) == first {
				c.add(number, one[0], one[1])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// applyNotes writes the dead letters and gaps of a batch in writes of their own,
// where one may be too large for all of them.
func (s *lane) applyNotes(ctx context.Context, source string, b *Batch) error {
	const atOnce = 500
	number := format.NoteNumber(s.cursors(source)[0].Number, s.first)
	// What is not ours another writer met too.
	dead := slices.DeleteFunc(slices.Clone(b.dead), func(d format.DeadLetter) bool { return !s.isMine(d) })
	gaps := b.gaps
	for len(dead)+len(gaps) > 0 {
		d, g := dead[:min(len(dead), atOnce)], gaps[:min(len(gaps), atOnce)]
		err := s.update(ctx, func(tx kv.Txn) error { return writeNotes(tx, source, number, d, g) })
		if err != nil {
			return fmt.Errorf("graph: noting %d dead letters and gaps: %w", len(d)+len(g), err)
		}
		s.notes.add(number, len(d), len(g))
		dead, gaps = dead[len(d):], gaps[len(g):]
	}
	return nil
}

// writeNotes writes dead letters and gaps. Their keys say where in the stream
// they are, so that a replay writes them over themselves.
func writeNotes(tx kv.Txn, source string, number uint32, dead []format.DeadLetter, gaps []format.Gap) error {
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
		tx.Set(format.NoteKey(format.KeyDeadLetter, number, d.Seq, path), v)
	}
	for _, g := range gaps {
		g.Source = source
		v, err := json.Marshal(g)
		if err != nil {
			return fmt.Errorf("graph: writing a gap: %w", err)
		}
		tx.Set(format.NoteKey(format.KeyGap, number, g.After, g.Place()), v)
	}
	return nil
}

// isMine reports whether it is for this writer to note a dead letter: those of
// no account are noted where the first partition is written.
func (s *Store) isMine(d format.DeadLetter) bool {
	if d.DID == "" {
		return s.ownsPart(0)
	}
	return s.Owns([]byte(d.DID))
}

func (s *lane) writeCounts(tx kv.Txn, c format.Counts) error {
	v, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("graph: writing the counts: %w", err)
	}
	tx.Set(s.PartKey(format.KeyCounts, s.first), v)
	return nil
}

// trimNotes deletes the oldest notes where there are too many: those that come
// first in the stream of a source, of the source whose first is the oldest.
func (s *lane) trimNotes(ctx context.Context) error {
	for keyspace, counts := range s.notes {
		total := 0
		for _, n := range counts {
			total += n
		}
		if total <= read.MaxDeadLetters+trimSlack {
			continue
		}
		var left map[uint32]int
		err := s.update(ctx, func(tx kv.Txn) (err error) {
			left, err = trimKeyspace(tx, keyspace, counts)
			return err
		})
		if err != nil {
			return fmt.Errorf("graph: trimming the dead letters: %w", err)
		}
		s.notes[keyspace] = left
	}
	return nil
}

// trimKeyspace leaves MaxDeadLetters notes of the sources that are counted, and
// returns how many each then has. It reads the keys of notes, and what they hold
// only of each source's first.
func trimKeyspace(tx kv.Txn, keyspace byte, counts map[uint32]int) (left map[uint32]int, err error) {
	type source struct {
		number uint32
		oldest time.Time
	}
	var sources []source
	left = map[uint32]int{}
	excess := -read.MaxDeadLetters
	for number := range counts {
		prefix := format.NoteKey(keyspace, number, 0, "")[:5]
		n, oldest := 0, time.Time{}
		err := kv.ScanPrefix(tx.Snapshot(), prefix, func(k, v []byte) error {
			if n++; n > 1 {
				return nil
			}
			var note struct {
				Time time.Time `json:"time"`
			}
			if err := json.Unmarshal(v, &note); err != nil {
				return fmt.Errorf("graph: reading note %x: %w", k, err)
			}
			oldest = note.Time
			return nil
		})
		if err != nil {
			return nil, err
		}
		if n > 0 { // counts may be too high: see noteCounts
			left[number] = n
			sources = append(sources, source{number, oldest})
			excess += n
		}
	}
	slices.SortFunc(sources, func(x, y source) int { return cmp.Or(x.oldest.Compare(y.oldest), cmp.Compare(x.number, y.number)) })
	for _, src := range sources {
		n := min(excess, left[src.number])
		if n <= 0 {
			break
		}
		if err := deleteFirst(tx, format.NoteKey(keyspace, src.number, 0, "")[:5], n); err != nil {
			return nil, err
		}
		left[src.number] -= n
		excess -= n
	}
	return left, nil
}

// deleteFirst deletes the first n keys under prefix, as one range.
func deleteFirst(tx kv.Txn, prefix []byte, n int) error {
	end := kv.PrefixEnd(prefix)
	err := tx.Snapshot().Scan(prefix, end, false, func(k, _ []byte) (bool, error) {
		if n--; n < 0 {
			end = bytes.Clone(k)
		}
		return n >= 0, nil
	})
	if err == nil {
		tx.DeleteRange(prefix, end)
	}
	return err
}
