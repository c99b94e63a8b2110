package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// ErrImport is returned if a store cannot be filled from an export.
var ErrImport = errors.New("import")

// BeginImport marks an empty store as the target of an import, or continues an import that did
// not finish (fresh is false then). Until EndImport the store can only be imported into.
func (s *Store) BeginImport(ctx context.Context) (fresh bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	err = s.kv.Update(ctx, func(tx kv.Txn) error {
		_, again, err := tx.Get(format.KeyImport)
		if err != nil {
			return err
		}
		counts, err := read.Counts(tx)
		if err != nil {
			return err
		}
		if fresh = counts.Accounts == 0; !fresh && !again {
			return fmt.Errorf("%w: the store already has %d accounts; import into an empty store", ErrImport, counts.Accounts)
		}
		for _, prefix := range [][]byte{{format.KeyCursor}, {format.KeyDeadLetter}, {format.KeyGap}, {format.KeyResync}, {format.KeyTouched}, format.KeyLacking, format.KeyHoles, format.KeyBackfill} {
			tx.DeleteRange(prefix, kv.PrefixEnd(prefix)) // from the unfinished import
		}
		tx.Set(format.KeyImport, nil)
		return nil
	})
	if err == nil {
		err = s.own(ctx, format.Partitions(s.parts.Load()))
	}
	return fresh, err
}

// ImportKinds notes the kinds that the exported store indexed. The next Open reports earlier
// records of other kinds as missing. indexed are names; configured are the kinds among them that
// are not built in, without numbers.
func (s *Store) ImportKinds(ctx context.Context, indexed []string, configured []kinds.Info) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	t, err := kinds.Configure(s.Kinds(), configured)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrImport, err)
	}
	var numbers []kinds.Kind
	for _, name := range indexed {
		k := t.ByName(name)
		if k == nil {
			return fmt.Errorf("%w: unknown kind %q: a newer skein wrote the export", ErrImport, name)
		}
		numbers = append(numbers, k.Kind)
	}
	slices.Sort(numbers)
	err = s.kv.Update(ctx, func(tx kv.Txn) error {
		h, _, err := read.FindHeader(tx)
		if err != nil {
			return err
		}
		h.Kinds = slices.Compact(numbers)
		tx.Set(format.HeaderKey, h.Append(nil))
		return setKinds(tx, t)
	})
	if err == nil {
		s.kinds.Store(t)
	}
	return err
}

// Doubts say what an exported store lacked, apart from what single accounts lacked.
type Doubts struct {
	// Lacking are the kinds that were added after the store had accounts, by name.
	Lacking map[string]format.Lack `json:"lacking,omitempty"`
	// Hole says that repos have not been compared since a hole of the stream.
	Hole bool `json:"hole,omitempty"`
	// Floors are the last events before the newest hole, by source.
	Floors map[string]format.Seq `json:"floors,omitempty"`
	// Unbroken is since when the stream had no hole, Untimed by the clock of its reader only.
	Unbroken time.Time `json:"unbroken,omitzero"`
	Untimed  bool      `json:"untimed,omitempty"`
	// Backfill says which past was being fetched.
	Backfill format.Backfill `json:"backfill"`
}

// ImportDoubts imports what the exported store lacked. Import the cursors first.
func (s *Store) ImportDoubts(ctx context.Context, d Doubts) error {
	if err := s.ChangeBackfill(ctx, func(b *format.Backfill) { *b = d.Backfill }); err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.kv.Update(ctx, func(tx kv.Txn) error { return setLacking(tx, d.Lacking) })
	if err != nil || !d.Hole && len(d.Floors) == 0 && d.Unbroken.IsZero() {
		return err
	}
	h := format.Holes{Parts: s.holes.Parts, Noted: 1, Compared: 1, Unbroken: d.Unbroken, Untimed: d.Untimed, Floors: map[uint32]format.Seq{}}
	if d.Hole {
		h.Compared = 0
	}
	for _, l := range s.lanes {
		for source, seq := range d.Floors {
			for part, row := range l.sources[source] {
				h.Floors[format.NoteNumber(row.Number, uint8(part))] = seq
			}
		}
	}
	return s.setHoles(ctx, h)
}

// ImportCursor sets the cursor of a source. number is the source's number in the imported states
// of accounts (batch.Batch.AddImport).
func (s *Store) ImportCursor(ctx context.Context, c format.Cursor, number uint32) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.changeCursors(ctx, c.Source, nil, func(_ *lane, row *format.CursorRow) {
		*row = format.CursorRow{Number: number, Seq: c.Seq, Time: c.Time, Future: c.Future, Exact: c.Exact}
	})
}

// EndImport finishes an import. It fails unless the store has exactly so many accounts and
// records.
func (s *Store) EndImport(ctx context.Context, accounts, records int64) error {
	return s.kv.Update(ctx, func(tx kv.Txn) error {
		counts, err := read.Counts(tx)
		if err != nil {
			return err
		}
		have := int64(0)
		for _, n := range counts.Records {
			have += n
		}
		if counts.Accounts != accounts || have != records {
			return fmt.Errorf("%w: the store has %d accounts and %d records, the export has %d and %d: an earlier import used another export, or this export repeats lines; import into an empty store",
				ErrImport, counts.Accounts, have, accounts, records)
		}
		tx.Delete(format.KeyImport)
		return nil
	})
}
