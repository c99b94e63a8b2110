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

// trimSlack is the number of notes above MaxDeadLetters, which bounds the gaps as well, that makes
// a trim due. Without it every new note would cause a scan of the keys.
const trimSlack = read.MaxDeadLetters

// Notes writes and counts the dead letters and gaps of one lane, so that Due can say when to trim
// them.
type Notes struct {
	First  uint8      // the lane's first partition
	Counts NoteCounts // how many notes the lane has
}

// NoteCounts count notes, by keyspace and by format.NoteNumber: the source and the lane. A note that is written
// again counts twice until the notes are trimmed.
type NoteCounts map[byte]map[uint32]int

// Add adds to the counts after a commit. number is the one that Write returned.
func (n *Notes) Add(number uint32, dead, gaps int) {
	if n.Counts == nil {
		n.Counts = NoteCounts{format.KeyDeadLetter: {}, format.KeyGap: {}}
	}
	n.Counts[format.KeyDeadLetter][number] += dead
	n.Counts[format.KeyGap][number] += gaps
}

// Load counts the lane's notes in the store.
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

// Write writes dead letters and gaps of a source, and returns the number to pass to Add after
// the commit. A note's key is its place in the stream, so a replay overwrites it.
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
			path = path[:1024] // engines bound keys; the letter itself has the whole path
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

// Due lists the keyspaces with too many notes.
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

// TrimKeyspace deletes notes until at most MaxDeadLetters are left, starting with the source whose
// first note is the oldest, and within a source with the lowest keys. It returns how many each
// source has left. It decodes only each source's first note.
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
		if n > 0 { // counts may be too high: see NoteCounts
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
