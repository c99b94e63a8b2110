package write

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// trimSlack is how far over MaxDeadLetters the store may grow before the oldest
// are deleted, so that the keys are gone through once for as many that come.
const trimSlack = read.MaxDeadLetters

// notes is the part of a write that records dead letters and gaps, and what deletes
// the oldest where there are too many. It is the writer's whose first partition is
// first.
type Notes struct {
	First  uint8
	Counts noteCounts // of the notes of this writer
}

// noteCounts say how many notes there are, by keyspace and the number of their
// source. One that is written over itself counts again, until they are trimmed.
type noteCounts map[byte]map[uint32]int

// add notes that so many were committed.
func (n *Notes) Add(number uint32, dead, gaps int) {
	if n.Counts == nil {
		n.Counts = noteCounts{format.KeyDeadLetter: {}, format.KeyGap: {}}
	}
	n.Counts[format.KeyDeadLetter][number] += dead
	n.Counts[format.KeyGap][number] += gaps
}

// load counts the notes of the writer.
func (n *Notes) Load(r kv.Reader) error {
	n.Counts = nil
	for keyspace, one := range map[byte][2]int{format.KeyDeadLetter: {1, 0}, format.KeyGap: {0, 1}} {
		err := kv.ScanPrefix(r, []byte{keyspace}, func(k, _ []byte) error {
			if number := format.NumberOf(k); uint8(number>>24) == n.First {
				n.Add(number, one[0], one[1])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes dead letters and gaps of a source, and returns the number under which
// they are counted (add) once they are committed. Their keys say where in the stream
// they are, so that a replay writes them over themselves.
func (n *Notes) Write(tx kv.Txn, source string, sourceNumber uint32, dead []format.DeadLetter, gaps []format.Gap) (number uint32, err error) {
	number = format.NoteNumber(sourceNumber, n.First)
	for _, d := range dead {
		d.Source = source
		v, err := json.Marshal(d)
		if err != nil {
			return 0, fmt.Errorf("graph: writing a dead letter: %w", err)
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
			return 0, fmt.Errorf("graph: writing a gap: %w", err)
		}
		tx.Set(format.NoteKey(format.KeyGap, number, g.After, g.Place()), v)
	}
	return number, nil
}

// due lists the keyspaces that have too many notes.
func (n *Notes) Due() (keyspaces []byte) {
	for keyspace, counts := range n.Counts {
		total := 0
		for _, c := range counts {
			total += c
		}
		if total > read.MaxDeadLetters+trimSlack {
			keyspaces = append(keyspaces, keyspace)
		}
	}
	return keyspaces
}

// trimKeyspace leaves MaxDeadLetters notes of the sources that are counted, and
// returns how many each then has. It reads the keys of notes, and what they hold
// only of each source's first.
func TrimKeyspace(tx kv.Txn, keyspace byte, counts map[uint32]int) (left map[uint32]int, err error) {
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
