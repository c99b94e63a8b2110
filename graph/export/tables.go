package export

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"golang.org/x/sync/errgroup"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Errors of WriteTables. They are wrapped; test with errors.Is.
var (
	// ErrFolder is returned if the folder is not empty.
	ErrFolder = errors.New("export: the folder is not empty; export into a folder that does not exist")
	// ErrKind is returned for a kind that the store does not have.
	ErrKind = errors.New("export: unknown kind of record")
)

// TableOptions say what WriteTables writes.
type TableOptions struct {
	// Dir is the folder to fill. It must not exist, or be empty.
	Dir string
	// Kinds are the names of the kinds of edges to write. None means all.
	Kinds []string
	// Since leaves out edges whose key is a TID from before that time. The zero time means none.
	Since   time.Time
	Program string // that writes, and its version
	// Progress, if set, is called with the number of edges written so far. Calls do not overlap.
	Progress func(edges int64)
}

// A Manifest says what WriteTables wrote.
type Manifest struct {
	Version int              `json:"skeinTables"` // of the layout: 1
	Program string           `json:"program"`
	Cursors []format.Cursor  `json:"cursors"` // of the stream: the state is that after these events
	Since   *time.Time       `json:"since,omitempty"`
	Tables  map[string]Table `json:"tables"` // by folder
}

// A Table is a folder of files with the same columns.
type Table struct {
	Rows  int64    `json:"rows"`
	Bytes int64    `json:"bytes"`
	Files []string `json:"files"`
}

// Edges returns the number of edges, and Bytes the size of all files.
func (m *Manifest) Edges() (n int64) {
	for name, t := range m.Tables {
		if strings.HasPrefix(name, edges+"/") {
			n += t.Rows
		}
	}
	return n
}

// Bytes returns the size of all tables.
func (m *Manifest) Bytes() (n int64) {
	for _, t := range m.Tables {
		n += t.Bytes
	}
	return n
}

const edges = "edges"

// workers is how many files of edges are written at a time.
const workers = 2

//go:embed views.sql
var views []byte

// WriteTables writes a store to a folder of Parquet files, for analysis. Nobody may write to the store
// meanwhile: each worker reads it for itself.
//
// The folder has
//
//	accounts/*.parquet      an accountRow for each DID
//	uris/*.parquet          a uriRow for each URI, and for other texts that records name
//	edges/KIND/*.parquet    an edgeRow for each record and subject that it names
//	views.sql               views and functions for DuckDB
//	manifest.json           a Manifest; it is written last
//
// An id is the number of a row, from 0 on, in this export: an account's id is its row in accounts, and
// a URI's its row in uris. It is not the store's id. The actor of an edge is an account, and so is the
// subject if the kind's records name accounts (follow, block); else it is a URI (like, repost).
//
// Records of inactive accounts (deactivated, deleted, taken down) are left out, and so are records that
// name an inactive account, just as the index leaves them out of its answers. An account can have two
// records that name the same subject: where a set is meant, use DISTINCT.
//
// Edges are sorted by actor, then by time; records whose key is not a TID come last. Row groups have a
// million rows. Columns are compressed with zstd, and have statistics.
func WriteTables(ctx context.Context, store kv.Store, o TableOptions) (*Manifest, error) {
	w := &tableWriter{o: o, store: store, m: &Manifest{Version: 1, Program: o.Program, Tables: map[string]Table{}}}
	if !o.Since.IsZero() {
		w.m.Since = &o.Since
	}
	for _, step := range []func(context.Context) error{w.begin, w.strings, w.edges} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return w.m, w.finish()
}

type tableWriter struct {
	o     TableOptions
	store kv.Store
	kinds []kinds.Info // to write

	layout   format.Layout
	accounts numbering
	uris     numbering
	hidden   []uint64 // a bit for each account that is not active

	telling sync.Mutex // guards told, and calls of Progress
	told    int64
	mu      sync.Mutex // guards m
	m       *Manifest
}

// begin checks that the folder is empty, and reads what the store holds.
func (w *tableWriter) begin(ctx context.Context) error {
	entries, err := os.ReadDir(w.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("export: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s", ErrFolder, w.o.Dir)
	}
	return w.store.View(ctx, func(r kv.Reader) error {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		w.layout = format.Layout{Settings: h.Settings}
		w.m.Cursors, err = read.Cursors(r)
		for _, k := range h.Table.All {
			if !k.Kind.IsLabel() && slices.Contains(h.Kinds, k.Kind) && (len(w.o.Kinds) == 0 || slices.Contains(w.o.Kinds, k.Name)) {
				w.kinds = append(w.kinds, k)
			}
		}
		for _, name := range w.o.Kinds {
			if !slices.ContainsFunc(w.kinds, func(k kinds.Info) bool { return k.Name == name }) {
				return fmt.Errorf("%w: %s", ErrKind, name)
			}
		}
		return err
	})
}

// An accountRow is a DID: known says that skein has received an event or the repo of the account,
// complete that nothing of its repo is known to be missing.
type accountRow struct {
	ID       uint32 `parquet:"id,delta"`
	DID      string `parquet:"did"`
	Known    bool   `parquet:"known"`
	Active   bool   `parquet:"active"`
	Complete bool   `parquet:"complete"`
}

// A uriRow is the URI of a record in one of the collections that package dict packs, with a TID as its
// key, or any other text in uri. The function tid in views.sql makes the key of time and clock.
type uriRow struct {
	ID         uint32  `parquet:"id,delta"`
	Author     *uint32 `parquet:"author"`
	Collection *string `parquet:"collection,dict"`
	Time       *int64  `parquet:"time,timestamp(microsecond)"`
	Clock      *uint16 `parquet:"clock,dict"`
	URI        *string `parquet:"uri"`
}

// An edgeRow is a record and one subject that it names. Nearly every record key is a TID: a time in
// microseconds, which the client claims, and the number of a clock. Any other key is in rkey.
type edgeRow struct {
	Actor   uint32  `parquet:"actor,delta"`
	Subject uint32  `parquet:"subject"`
	Time    *int64  `parquet:"time,timestamp(microsecond)"`
	Clock   *uint16 `parquet:"clock,dict"`
	Rkey    *string `parquet:"rkey"`
}

// stamp divides a TID.
func stamp(tid uint64) (micros *int64, clock *uint16) {
	return new(int64(tid >> 10)), new(uint16(tid & 1023)) // 54 bits and 10
}

// rowsInGroup is the number of rows of a row group, and rowsAtOnce that of rows that wait to be
// divided into columns.
const (
	rowsInGroup = 1 << 20
	rowsAtOnce  = 1 << 10
)

// A tableFile is a Parquet file that is being written. A T is a row: a struct whose fields have tags of parquet-go, and a
// pointer is nil for null. Memory holds one compressed row group at most.
type tableFile[T any] struct {
	w    *parquet.GenericWriter[T]
	rows []T // that wait
	n    int64
}

func (t *tableFile[T]) add(row T) error {
	t.n++
	if t.rows = append(t.rows, row); len(t.rows) < rowsAtOnce {
		return nil
	}
	return t.flush()
}

func (t *tableFile[T]) flush() error {
	_, err := t.w.Write(t.rows)
	t.rows = t.rows[:0]
	return err
}

// writeTable makes the file of a table, whose rows ascend by the column sorted, lets fill write its rows,
// and completes it.
func writeTable[T any](w *tableWriter, folder string, part int, sorted string, fill func(t *tableFile[T]) error) (err error) {
	name := fmt.Sprintf("%s/part-%05d.parquet", folder, part)
	path := filepath.Join(w.o.Dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	t := &tableFile[T]{w: parquet.NewGenericWriter[T](out,
		&parquet.WriterConfig{CreatedBy: w.o.Program},
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsInGroup),
		parquet.PageBufferSize(1<<20),
		parquet.DataPageVersion(1),
		parquet.DefaultEncodingFor(parquet.Int64, &parquet.DeltaBinaryPacked), // times
		parquet.DefaultEncodingFor(parquet.ByteArray, &parquet.Plain),
		parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending(sorted))),
	)}
	if err := fill(t); err != nil {
		return err
	}
	if err := errors.Join(t.flush(), t.w.Close(), out.Flush(), f.Sync()); err != nil {
		return fmt.Errorf("export: %s: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.m.Tables[folder]
	all.Rows += t.n
	all.Bytes += info.Size()
	all.Files = append(all.Files, name)
	slices.Sort(all.Files)
	w.m.Tables[folder] = all
	return nil
}

// strings writes the accounts, and then the URIs, whose authors are accounts.
func (w *tableWriter) strings(ctx context.Context) error {
	err := writeTable(w, "accounts", 0, "id", func(t *tableFile[accountRow]) error {
		return w.eachForm(ctx, dict.DID, func(states kv.Reader, of dict.ID, form []byte) error {
			n, err := w.accounts.add(of)
			if err != nil {
				return err
			}
			st, found, err := read.FindAccount(states, w.layout, of)
			if err != nil {
				return err
			}
			active := !found || !st.Has(format.FlagHidden)
			if int(n/64) >= len(w.hidden) {
				w.hidden = append(w.hidden, 0)
			}
			if !active || st.Has(format.FlagErasing) {
				w.hidden[n/64] |= 1 << (n % 64)
			}
			return t.add(accountRow{n, string(dict.AppendDID(nil, form)), found, active, found && st.Complete()})
		})
	})
	if err != nil {
		return err
	}
	return writeTable(w, "uris", 0, "id", func(t *tableFile[uriRow]) error {
		return w.eachForm(ctx, dict.URI, func(states kv.Reader, of dict.ID, form []byte) error {
			n, err := w.uris.add(of)
			if err != nil {
				return err
			}
			tid, by, in, packed, err := dict.UnpackURI(form)
			if err != nil {
				return err // it names the package
			}
			if !packed {
				return t.add(uriRow{ID: n, URI: new(string(dict.UnpackRaw(form)))})
			}
			if tid >= format.EndOfTime { // the key's first bit is set: it names no time
				return intern.Strings(states, dict.URI, []dict.ID{of}, func(_ int, s []byte) error { return t.add(uriRow{ID: n, URI: new(string(s))}) })
			}
			author, ok := w.accounts.of(by)
			if !ok {
				return fmt.Errorf("export: %w: the author of URI %d is not in the dictionary", dict.ErrMalformed, of)
			}
			micros, clock := stamp(tid)
			return t.add(uriRow{n, &author, new(dict.PackedCollection(in)), micros, clock, nil})
		})
	})
}

// eachForm calls each for the strings of a namespace, ascending by id, with a second reader.
func (w *tableWriter) eachForm(ctx context.Context, ns dict.Namespace, each func(states kv.Reader, id dict.ID, form []byte) error) error {
	return w.store.View(ctx, func(r kv.Reader) error {
		return w.store.View(ctx, func(states kv.Reader) error {
			return intern.EachForm(r, ns, func(id dict.ID, form []byte) error { return each(states, id, form) })
		})
	})
}

// edges writes the edges of all kinds. The actors are divided between the workers.
func (w *tableWriter) edges(ctx context.Context) error {
	bounds := w.accounts.split(workers)
	g, ctx := errgroup.WithContext(ctx)
	for part := range len(bounds) - 1 {
		g.Go(func() error {
			for i := range w.kinds {
				if err := w.part(ctx, &w.kinds[i], part, bounds[part], bounds[part+1]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait() // by part
}

// part writes the edges of a kind whose actors are in [from, to).
func (w *tableWriter) part(ctx context.Context, k *kinds.Info, part int, from, to dict.ID) error {
	subjects := &w.uris
	if k.To.Is() == dict.DID {
		subjects = &w.accounts
	}
	since := uint64(0)
	if !w.o.Since.IsZero() {
		since = uint64(max(w.o.Since.UnixMicro(), 0)) << 10
	}
	return writeTable(w, edges+"/"+k.Name, part, "actor", func(t *tableFile[edgeRow]) error {
		var failed error
		last, lastNumber, lastKnown, told := dict.None, uint32(0), false, int64(0)
		err := w.store.View(ctx, func(r kv.Reader) error {
			return read.RecordsBetween(r, k.Kind, from, to, func(of dict.ID, rec *format.Record) bool {
				if of != last {
					last = of
					lastNumber, lastKnown = w.accounts.of(of)
				}
				if !lastKnown {
					failed = fmt.Errorf("export: %w: actor %d has records, and no DID", dict.ErrMalformed, of)
					return false
				}
				if rec.Subject == dict.None || w.isHidden(lastNumber) || rec.Path.HasTime() && rec.Path.TID < since {
					return true
				}
				n, ok := subjects.of(rec.Subject)
				if !ok {
					failed = fmt.Errorf("export: %w: subject %d of %s records has no string", dict.ErrMalformed, rec.Subject, k.Name)
					return false
				}
				if subjects == &w.accounts && w.isHidden(n) {
					return true
				}
				row := edgeRow{Actor: lastNumber, Subject: n}
				if rec.Path.HasTime() {
					row.Time, row.Clock = stamp(rec.Path.TID)
				} else {
					row.Rkey = new(string(rec.Path.AppendRkey(nil)))
				}
				if failed = t.add(row); failed != nil {
					return false
				}
				if t.n-told >= 1<<16 {
					w.tell(t.n - told)
					told = t.n
				}
				return true
			})
		})
		w.tell(t.n - told)
		return errors.Join(failed, err)
	})
}

func (w *tableWriter) isHidden(account uint32) bool { return w.hidden[account/64]>>(account%64)&1 != 0 }

func (w *tableWriter) tell(n int64) {
	w.telling.Lock()
	defer w.telling.Unlock()
	if w.told += n; w.o.Progress != nil && n > 0 {
		w.o.Progress(w.told)
	}
}

// finish writes the views, one of each kind among them, and the manifest.
func (w *tableWriter) finish() error {
	all := slices.Clone(views)
	for _, k := range w.kinds {
		all = fmt.Appendf(all, "\nCREATE OR REPLACE VIEW \"%s\" AS SELECT * FROM 'edges/%s/*.parquet';\n", k.Name, k.Name)
	}
	if err := os.WriteFile(filepath.Join(w.o.Dir, "views.sql"), all, 0o644); err != nil { // for others to read
		return fmt.Errorf("export: %w", err)
	}
	b, err := json.MarshalIndent(w.m, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(w.o.Dir, "manifest.json"), append(b, '\n'), 0o644) // for others to read
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}
