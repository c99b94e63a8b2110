package export

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// importOps is the number of records in one batch.
const importOps = 50_000

// Read fills an empty store, which was opened with Options.Import, from an export. Strings get
// new ids. To repeat an import that did not finish, read the export into the same store again,
// from the beginning; until it finishes, the store cannot be used for anything else.
func Read(ctx context.Context, s *graph.Store, r io.Reader, progress func(records int64)) (Counts, error) {
	m := &importer{s: s, progress: progress, numbers: map[string]uint32{}}
	in, sum := bufio.NewReaderSize(r, 1<<20), sha256.New()
	if err := checkHead(in); err != nil { // before BeginImport makes the store unusable
		return m.counts, err
	}
	var err error
	if m.fresh, err = s.BeginImport(ctx); err != nil {
		return m.counts, err
	}
	for n := 1; ; n++ {
		var l line
		text, err := in.ReadBytes('\n')
		if err == nil || errors.Is(err, io.EOF) && len(text) > 0 { // the last line may lack a newline
			if err = json.Unmarshal(text, &l); err != nil && !bytes.HasSuffix(text, []byte("\n")) {
				err = io.EOF // the line is truncated
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return m.counts, fmt.Errorf("%w: the export is truncated: it stops in line %d", graph.ErrImport, n)
		case err != nil:
			return m.counts, fmt.Errorf("%w: line %d: %w", graph.ErrImport, n, err)
		case n == 1 && l.Export != exportVersion, n > 1 && l.Export != 0:
			return m.counts, fmt.Errorf("%w: line %d: unknown version of an export", graph.ErrImport, n)
		case l.End != nil:
			if got := hex.EncodeToString(sum.Sum(nil)); got != l.End.SHA256 {
				return m.counts, fmt.Errorf("%w: the export is damaged: the sum of its bytes is %s, expected %s", graph.ErrImport, got, l.End.SHA256)
			}
			if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				return m.counts, fmt.Errorf("%w: the file continues after the export's end in line %d: %w", graph.ErrImport, n, cmp.Or(err, errors.New("unexpected bytes")))
			}
			return m.counts, m.end(ctx, l.End)
		}
		if _, err := sum.Write(text); err != nil {
			return m.counts, fmt.Errorf("%w: line %d: %w", graph.ErrImport, n, err)
		}
		if err := m.line(ctx, &l); err != nil {
			return m.counts, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// checkHead returns an error unless in begins like an export.
func checkHead(in *bufio.Reader) error {
	const head = `{"export":`
	b, err := in.Peek(len(head))
	switch {
	case string(b) == head:
		return nil
	case len(b) == 0 && errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the file is empty", graph.ErrImport)
	case len(b) == 0:
		return fmt.Errorf("%w: %w", graph.ErrImport, err)
	case len(b) > 2 && b[0] == 0x1f && b[1] == 0x8b, len(b) > 4 && string(b[:4]) == "\x28\xb5\x2f\xfd":
		return fmt.Errorf("%w: the file is compressed: unpack it and import - (gzip -dc FILE | skein import -)", graph.ErrImport)
	}
	return fmt.Errorf("%w: not an export of skein: the file begins with %q", graph.ErrImport, b)
}

type importer struct {
	s        *graph.Store
	fresh    bool
	batch    batch.Batch
	numbers  map[string]uint32 // of sources, in all partitions
	counts   Counts
	progress func(int64)
}

func (m *importer) line(ctx context.Context, l *line) error {
	switch {
	case l.Export != 0: // the first line has the kinds that the exported store indexed
		configured, err := kinds.Parse(strings.Join(l.More, "\n"))
		if err != nil {
			return fmt.Errorf("%w: the kinds of the export: %w", graph.ErrImport, err)
		}
		return m.s.ImportKinds(ctx, l.Kinds, configured)
	case l.Cursor != nil:
		m.numbers[l.Cursor.Source] = uint32(len(m.numbers) + 1)
		return m.s.ImportCursor(ctx, *l.Cursor, m.numbers[l.Cursor.Source])
	case l.Dead != nil:
		m.batch.AddDeadLetter(*l.Dead)
		return m.apply(ctx, l.Dead.Source)
	case l.Gap != nil:
		m.batch.AddGap(*l.Gap)
		return m.apply(ctx, l.Gap.Source)
	case l.Doubts != nil:
		return m.s.ImportDoubts(ctx, *l.Doubts)
	case l.Account != nil:
		return m.account(ctx, l.Account)
	case l.Kind != "":
		return m.records(ctx, l)
	}
	return nil
}

func (m *importer) apply(ctx context.Context, source string) error {
	err := m.s.Apply(ctx, source, &m.batch)
	m.batch.Reset()
	if m.progress != nil {
		m.progress(m.counts.Records)
	}
	return err
}

// full applies the batch if it has enough operations.
func (m *importer) full(ctx context.Context) error {
	if events, ops, _ := m.batch.Size(); events+ops >= importOps {
		return m.apply(ctx, "")
	}
	return nil
}

func (m *importer) account(ctx context.Context, a *exportAccount) error {
	if !dict.ValidDID(a.DID) {
		return fmt.Errorf("%w: %q is not a DID", graph.ErrImport, a.DID)
	}
	st := format.RepoState{
		Source: m.numbers[a.Last.Source], Seq: a.Last.Seq,
		AccountSource: m.numbers[a.LastAccount.Source], AccountSeq: a.LastAccount.Seq,
		DeletionSource: m.numbers[a.LastDeletion.Source], DeletionSeq: a.LastDeletion.Seq,
	}
	for flag, on := range map[uint16]bool{format.FlagNoRoot: a.NoRoot, format.FlagBehind: a.Behind, format.FlagHidden: a.Hidden, format.FlagPartial: a.Partial, format.FlagDesync: a.Desynchronized, format.FlagReturned: a.Returned} {
		if on {
			st.Flags |= flag
		}
	}
	if a.Rev != "" {
		rev, ok := dict.ParseTID(a.Rev)
		root, err := hex.DecodeString(a.Root)
		if !ok || err != nil || len(root) != len(st.Data) {
			return fmt.Errorf("%w: the rev or root of %s is malformed", graph.ErrImport, a.DID)
		}
		st.Flags |= format.FlagHasRev
		st.Rev = format.Rev(rev)
		copy(st.Data[:], root)
	}
	st.Top = uint64(st.Rev)
	if a.Top != "" {
		top, ok := dict.ParseTID(a.Top)
		if !ok {
			return fmt.Errorf("%w: the top of %s is malformed", graph.ErrImport, a.DID)
		}
		st.Top = top
	}
	for _, t := range a.Touched {
		if t.Kind != kinds.Hidden && (m.s.Kinds().Info(t.Kind) == nil || !dict.ValidRkey(t.Rkey)) {
			return fmt.Errorf("%w: a change by the stream to %s is malformed: %+v", graph.ErrImport, a.DID, t)
		}
	}
	m.batch.AddImport([]byte(a.DID), &batch.Imported{State: st, Queued: a.Queued, Touched: a.Touched}, m.fresh)
	m.counts.Accounts++
	return m.full(ctx)
}

func (m *importer) records(ctx context.Context, l *line) error {
	kind := m.s.Kinds().ByName(l.Kind)
	if kind == nil || !dict.ValidDID(l.DID) {
		return fmt.Errorf("%w: %s records of %q", graph.ErrImport, l.Kind, l.DID)
	}
	m.batch.AddImport([]byte(l.DID), nil, m.fresh)
	for _, r := range l.Records {
		if !dict.ValidRkey(r[0]) || r[1] != "" && !kind.To.Form.Valid([]byte(r[1])) {
			return fmt.Errorf("%w: the %s record %q of %s names %q", graph.ErrImport, l.Kind, r[0], l.DID, r[1])
		}
		m.batch.AddPut(kind.Kind, []byte(r[0]), []byte(r[1]))
		m.counts.Records++
	}
	return m.full(ctx)
}

// end finishes the import if it is complete.
func (m *importer) end(ctx context.Context, want *Counts) error {
	if err := m.apply(ctx, ""); err != nil {
		return err
	}
	if m.counts.Accounts != want.Accounts || m.counts.Records != want.Records {
		return fmt.Errorf("%w: the export has %d accounts and %d records, expected %d and %d",
			graph.ErrImport, m.counts.Accounts, m.counts.Records, want.Accounts, want.Records)
	}
	return m.s.EndImport(ctx, want.Accounts, want.Records)
}
