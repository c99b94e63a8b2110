package graph

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/graph/read"
	"skein/internal/kv"
	"skein/internal/syntax"
)

// ErrImport is returned by Import for an export that cannot be read, or a store
// that is not empty.
var ErrImport = errors.New("graph: import")

// importOps is how many records are imported in one batch.
const importOps = 50_000

// Import fills an empty store, which was opened with Options.Import, from an
// export. Ids are drawn anew. One that was not finished is begun again from the
// beginning, into the same store; until it is, the store is good for nothing
// else.
func (s *Store) Import(ctx context.Context, r io.Reader, progress func(records int64)) (ExportedCounts, error) {
	m := &importer{s: s, ctx: ctx, progress: progress, numbers: map[string]uint32{}}
	if err := m.begin(); err != nil {
		return m.counts, err
	}
	in, sum := bufio.NewReaderSize(r, 1<<20), sha256.New()
	for n, version := 1, 0; ; n++ {
		var l line
		text, err := in.ReadBytes('\n')
		if err == nil || errors.Is(err, io.EOF) && len(text) > 0 { // the last line may have no end
			if err = json.Unmarshal(text, &l); err != nil && !bytes.HasSuffix(text, []byte("\n")) {
				err = io.EOF // it was cut
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return m.counts, fmt.Errorf("%w: the export ends in line %d, before its end: it is not whole", ErrImport, n)
		case err != nil:
			return m.counts, fmt.Errorf("%w: line %d: %w", ErrImport, n, err)
		case (n == 1) != (l.Export != 0) || l.Export > exportVersion:
			return m.counts, fmt.Errorf("%w: line %d: this is not an export that skein knows", ErrImport, n)
		case l.End != nil:
			if got := hex.EncodeToString(sum.Sum(nil)); version >= 2 && got != l.End.SHA256 {
				return m.counts, fmt.Errorf("%w: the export is damaged: the sum of its bytes is %s, its end says %s", ErrImport, got, l.End.SHA256)
			}
			return m.counts, m.end(l.End)
		}
		if _, err := sum.Write(text); err != nil {
			return m.counts, fmt.Errorf("%w: line %d: %w", ErrImport, n, err)
		}
		version = max(version, l.Export)
		if err := m.line(&l); err != nil {
			return m.counts, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

type importer struct {
	s        *Store
	ctx      context.Context //nolint:containedctx // lives as long as the one Import
	fresh    bool
	batch    Batch
	numbers  map[string]uint32 // of sources, in all partitions
	counts   ExportedCounts
	progress func(int64)
}

// begin marks the store as being imported into, if it is empty.
func (m *importer) begin() error {
	return m.s.kv.Update(m.ctx, func(tx kv.Txn) error {
		_, again, err := tx.Get(format.KeyImport)
		if err != nil {
			return err
		}
		counts, err := read.Counts(tx)
		if err != nil {
			return err
		}
		if m.fresh = counts.Accounts == 0; !m.fresh && !again {
			return fmt.Errorf("%w: the store has %d accounts already; import into an empty one", ErrImport, counts.Accounts)
		}
		tx.Set(format.KeyImport, nil)
		return nil
	})
}

func (m *importer) line(l *line) error {
	switch {
	case l.Cursor != nil:
		return m.cursor(l.Cursor)
	case l.Dead != nil:
		return m.note(l.Dead.Source, func(b *Batch) { b.AddDeadLetter(*l.Dead) })
	case l.Gap != nil:
		return m.note(l.Gap.Source, func(b *Batch) { b.AddGap(*l.Gap) })
	case l.Account != nil:
		return m.account(l.Account)
	case l.Kind != "":
		return m.records(l)
	}
	return nil
}

func (m *importer) cursor(c *exportCursor) error {
	m.numbers[c.Source] = uint32(len(m.numbers) + 1)
	return m.s.changeCursors(m.ctx, c.Source, nil, func(_ *lane, row *format.CursorRow) {
		*row = format.CursorRow{Number: m.numbers[c.Source], Seq: c.Seq, Time: c.Time, Future: c.Future}
	})
}

// note writes one dead letter or gap.
func (m *importer) note(source string, add func(*Batch)) error {
	add(&m.batch)
	return m.apply(source)
}

func (m *importer) apply(source string) error {
	err := m.s.Apply(m.ctx, source, &m.batch)
	m.batch.Reset()
	if m.progress != nil {
		m.progress(m.counts.Records)
	}
	return err
}

// full applies the batch if it has enough.
func (m *importer) full() error {
	if events, ops, _ := m.batch.Size(); events+ops >= importOps {
		return m.apply("")
	}
	return nil
}

func (m *importer) account(a *exportAccount) error {
	if !syntax.ValidDID(a.DID) {
		return fmt.Errorf("%w: %q is no DID", ErrImport, a.DID)
	}
	st := format.RepoState{Source: m.numbers[a.Last.Source], Seq: a.Last.Seq}
	for flag, on := range map[byte]bool{format.FlagHidden: a.Hidden, format.FlagPartial: a.Partial, format.FlagDesync: a.Desynchronized} {
		if on {
			st.Flags |= flag
		}
	}
	if a.Rev != "" {
		rev, ok := syntax.ParseTID(a.Rev)
		root, err := hex.DecodeString(a.Root)
		if !ok || err != nil || len(root) != len(st.Data) {
			return fmt.Errorf("%w: the rev or root of %s is malformed", ErrImport, a.DID)
		}
		st.Flags |= format.FlagHasRev
		st.Rev = format.Rev(rev)
		copy(st.Data[:], root)
	}
	st.Top = uint64(st.Rev)
	if a.Top != "" {
		top, ok := syntax.ParseTID(a.Top)
		if !ok {
			return fmt.Errorf("%w: the top of %s is malformed", ErrImport, a.DID)
		}
		st.Top = top
	}
	if s := a.LastAccount; s != nil {
		st.AccountSource, st.AccountSeq = m.numbers[s.Source], s.Seq
	}
	if s := a.LastDeletion; s != nil {
		st.DeletionSource, st.DeletionSeq = m.numbers[s.Source], s.Seq
	}
	m.batch.addImport([]byte(a.DID), &st, m.fresh)
	m.counts.Accounts++
	return m.full()
}

func (m *importer) records(l *line) error {
	var kind *kinds.Info
	for i := range kinds.All {
		if kinds.All[i].Name == l.Kind {
			kind = &kinds.All[i]
		}
	}
	if kind == nil || !syntax.ValidDID(l.DID) {
		return fmt.Errorf("%w: %s records of %q", ErrImport, l.Kind, l.DID)
	}
	m.batch.addImport([]byte(l.DID), nil, m.fresh)
	for _, r := range l.Records {
		if !syntax.ValidRkey(r[0]) || r[1] != "" && !kind.To.Is.Valid([]byte(r[1])) {
			return fmt.Errorf("%w: the %s record %q of %s names %q", ErrImport, l.Kind, r[0], l.DID, r[1])
		}
		m.batch.AddPut(kind.Kind, []byte(r[0]), []byte(r[1]))
		m.counts.Records++
	}
	return m.full()
}

// end finishes the import, if all is there.
func (m *importer) end(want *ExportedCounts) error {
	if err := m.apply(""); err != nil {
		return err
	}
	if m.counts.Accounts != want.Accounts || m.counts.Records != want.Records {
		return fmt.Errorf("%w: there are %d accounts and %d records, and should be %d and %d",
			ErrImport, m.counts.Accounts, m.counts.Records, want.Accounts, want.Records)
	}
	return m.s.kv.Update(m.ctx, func(tx kv.Txn) error {
		counts, err := read.Counts(tx)
		if err != nil {
			return err
		}
		records := int64(0)
		for _, n := range counts.Records {
			records += n
		}
		if counts.Accounts != want.Accounts || records != want.Records {
			return fmt.Errorf("%w: the store has %d accounts and %d records now, the export %d and %d: the import was begun with another export, or that repeats itself; import into an empty store",
				ErrImport, counts.Accounts, records, want.Accounts, want.Records)
		}
		tx.Delete(format.KeyImport)
		return nil
	})
}
