package graph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
)

// notes writes and counts the dead letters and gaps of a lane.
type notes struct {
	first  uint8        // the lane's first partition
	counts map[byte]int // by keyspace. A note that is written again counts twice until the notes are trimmed
	source uint32       // the highest number of a source with notes
}

// load counts the lane's notes in the store.
func (n *notes) load(r kv.Reader) error {
	for _, keyspace := range []byte{format.KeyDeadLetter, format.KeyGap} {
		err := kv.ScanPrefix(r, []byte{keyspace, n.first}, func(k, _ []byte) error {
			n.counts[keyspace]++
			n.source = max(n.source, format.SourceOfNote(format.NumberOf(k)))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes dead letters and gaps of a source. A note's key is its place in the stream, so a replay overwrites it.
func (n *notes) write(tx kv.Txn, source string, number uint32, dead []format.DeadLetter, gaps []format.Gap) error {
	number = format.NoteNumber(number, n.first)
	for _, d := range dead {
		d.Source = source
		path := d.Path
		if len(path) > 1024 {
			path = path[:1024] // engines bound keys; the letter itself has the whole path
		}
		if err := write.SetJSON(tx, format.NoteKey(format.KeyDeadLetter, number, d.Seq, path), d); err != nil {
			return err
		}
	}
	for _, g := range gaps {
		g.Source = source
		if err := write.SetJSON(tx, format.NoteKey(format.KeyGap, number, g.After, g.Place()), g); err != nil {
			return err
		}
	}
	return nil
}

// keptNotes is the number of the newest dead letters, and of the newest gaps, that a lane keeps. It may have twice as many.
const keptNotes = 10_000

// trimNotes deletes the oldest notes of each keyspace if there are too many.
func (l *lane) trimNotes(ctx context.Context) error {
	for keyspace, n := range l.notes.counts {
		if n <= 2*keptNotes {
			continue
		}
		old, err := oldNotes(ctx, l.store.kv, []byte{keyspace, l.first})
		for some := range slices.Chunk(old, notesAtOnce) {
			if err == nil {
				err = l.update(ctx, func(tx kv.Txn) error {
					for _, key := range some {
						tx.Delete(key)
					}
					return nil
				})
			}
		}
		if err != nil {
			return fmt.Errorf("graph: trimming the dead letters: %w", err)
		}
		l.notes.counts[keyspace] = keptNotes
	}
	return nil
}

// notesAtOnce is the number of notes that one write makes or deletes: all of them may be too large for one.
const notesAtOnce = 500

// oldNotes returns the keys of the notes under a prefix that are older than the newest keptNotes. A note that cannot be read is
// old.
func oldNotes(ctx context.Context, store kv.Store, prefix []byte) (old [][]byte, err error) {
	type note struct {
		key  []byte
		Time time.Time `json:"time"`
	}
	var all []note
	err = store.View(ctx, func(r kv.Reader) error {
		all = nil
		return kv.ScanPrefix(r, prefix, func(k, v []byte) error {
			n := note{key: bytes.Clone(k)}
			_ = json.Unmarshal(v, &n)
			all = append(all, n)
			return nil
		})
	})
	if err != nil || len(all) <= keptNotes {
		return nil, err
	}
	slices.SortStableFunc(all, func(x, y note) int { return x.Time.Compare(y.Time) })
	for _, n := range all[:len(all)-keptNotes] {
		old = append(old, n.key)
	}
	return old, nil
}
