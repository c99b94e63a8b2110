package tables

import (
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

	"golang.org/x/sync/errgroup"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Errors of Write. They are wrapped; test with errors.Is.
var (
	// ErrFolder is returned if the folder is not empty.
	ErrFolder = errors.New("tables: the folder is not empty; export into a folder that does not exist")
	// ErrKind is returned for a kind that the store does not have.
	ErrKind = errors.New("tables: unknown kind of record")
)

// Options say what to write.
type Options struct {
	// Dir is the folder to fill. It must not exist, or be empty.
	Dir string
	// Kinds are the names of the kinds of edges to write. nil means all.
	Kinds []string
	// Since leaves out edges whose key is a TID from before that time. The zero time means none.
	Since time.Time
	// Workers is how many files are written at a time. 0 means 2.
	Workers int
	Program string // that writes, and its version
	// Progress, if set, is called with the number of edges written so far. Calls do not overlap.
	Progress func(edges int64)
}

// A Manifest says what Write wrote.
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

//go:embed views.sql
var views []byte

// Write writes a store to a folder. Nobody may write to the store meanwhile: each worker reads it
// for itself.
func Write(ctx context.Context, store kv.Store, o Options) (*Manifest, error) {
	w := &writer{o: o, store: store, m: &Manifest{Version: 1, Program: o.Program, Tables: map[string]Table{}}}
	if !o.Since.IsZero() {
		w.m.Since = &o.Since
	}
	if err := w.begin(ctx); err != nil {
		return nil, err
	}
	if err := w.strings(ctx); err != nil {
		return nil, err
	}
	if err := w.edges(ctx); err != nil {
		return nil, err
	}
	return w.m, w.finish()
}

type writer struct {
	o     Options
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

// begin makes the folder, and reads what the store holds.
func (w *writer) begin(ctx context.Context) error {
	entries, err := os.ReadDir(w.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tables: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s", ErrFolder, w.o.Dir)
	}
	err = w.store.View(ctx, func(r kv.Reader) error {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		if err := read.NotImporting(r); err != nil {
			return err
		}
		w.layout = format.Layout{Settings: h.Settings}
		w.m.Cursors, err = read.Cursors(r)
		for _, k := range h.Table.All {
			if !k.Kind.IsLabel() && slices.Contains(h.Kinds, k.Kind) && (w.o.Kinds == nil || slices.Contains(w.o.Kinds, k.Name)) {
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
	if err != nil {
		return err
	}
	for _, folder := range []string{"accounts", "uris"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(w.o.Dir, folder), 0o755))
	}
	for _, k := range w.kinds {
		err = errors.Join(err, os.MkdirAll(filepath.Join(w.o.Dir, edges, k.Name), 0o755))
	}
	if err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	return nil
}

// table makes the file of a table, lets fill write its rows, and completes it.
func (w *writer) table(folder string, part int, sorted bool, columns []*column, fill func(t *table) error) error {
	name := filepath.ToSlash(filepath.Join(folder, fmt.Sprintf("part-%05d.parquet", part)))
	t, err := newTable(filepath.Join(w.o.Dir, filepath.FromSlash(name)), w.o.Program, sorted, columns...)
	if err != nil {
		return err
	}
	if err := t.close(fill(t)); err != nil {
		return err
	}
	info, err := os.Stat(t.name)
	if err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.m.Tables[folder]
	all.Rows += t.Rows
	all.Bytes += info.Size()
	all.Files = append(all.Files, name)
	slices.Sort(all.Files)
	w.m.Tables[folder] = all
	return nil
}

// strings writes the accounts, and then the URIs, whose authors are accounts.
func (w *writer) strings(ctx context.Context) error {
	id, did, known, active, complete := number("id", false, true), text("did", false, false), truth("known"), truth("active"), truth("complete")
	err := w.table("accounts", 0, true, []*column{id, did, known, active, complete}, func(t *table) error {
		var buf []byte
		return w.eachForm(ctx, dict.DID, func(states kv.Reader, of dict.ID, form []byte) error {
			n, err := w.accounts.add(of)
			if err != nil {
				return err
			}
			st, found, err := read.FindAccount(states, w.layout, of)
			if err != nil {
				return err
			}
			isActive := !found || !st.Has(format.FlagHidden)
			if int(n/64) >= len(w.hidden) {
				w.hidden = append(w.hidden, 0)
			}
			if !isActive || st.Has(format.FlagErasing) {
				w.hidden[n/64] |= 1 << (n % 64)
			}
			buf = dict.AppendDID(buf[:0], form)
			id.addNumber(n)
			did.addText(buf)
			known.addTruth(found)
			active.addTruth(isActive)
			complete.addTruth(found && st.Complete())
			return t.row()
		})
	})
	if err != nil {
		return err
	}
	id, author, collection, at, number2, uri := number("id", false, true), number("author", true, false), text("collection", true, true), moment("time"), clock("clock"), text("uri", true, false)
	return w.table("uris", 0, true, []*column{id, author, collection, at, number2, uri}, func(t *table) error {
		return w.eachForm(ctx, dict.URI, func(_ kv.Reader, of dict.ID, form []byte) error {
			n, err := w.uris.add(of)
			if err != nil {
				return err
			}
			id.addNumber(n)
			tid, by, in, packed, err := dict.UnpackURI(form)
			if err != nil {
				return err
			}
			if a, ok := w.accounts.of(by); packed && ok && tid < format.EndOfTime {
				author.addNumber(a)
				collection.addText([]byte(dict.PackedCollection(in)))
				at.addMoment(int64(tid >> 10)) // 54 bits
				number2.addNumber(uint32(tid & 1023))
				uri.addNull()
				return t.row()
			}
			if packed {
				return fmt.Errorf("tables: %w: the author of URI %d is not in the dictionary, or its key is not a time", dict.ErrMalformed, of)
			}
			author.addNull()
			collection.addNull()
			at.addNull()
			number2.addNull()
			uri.addText(dict.UnpackRaw(form))
			return t.row()
		})
	})
}

// eachForm calls each for the strings of a namespace, ascending by id, with a second reader.
func (w *writer) eachForm(ctx context.Context, ns dict.Namespace, each func(states kv.Reader, id dict.ID, form []byte) error) error {
	return w.store.View(ctx, func(r kv.Reader) error {
		return w.store.View(ctx, func(states kv.Reader) error {
			return intern.EachForm(r, ns, func(id dict.ID, form []byte) error { return each(states, id, form) })
		})
	})
}

// edges writes the edges of all kinds. The actors are divided between the workers.
func (w *writer) edges(ctx context.Context) error {
	workers := w.o.Workers
	if workers <= 0 {
		workers = 2
	}
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
	return g.Wait()
}

// part writes the edges of a kind whose actors are in [from, to).
func (w *writer) part(ctx context.Context, k *kinds.Info, part int, from, to dict.ID) error {
	subjects := &w.uris
	if k.To.Is() == dict.DID {
		subjects = &w.accounts
	}
	since := uint64(0)
	if !w.o.Since.IsZero() {
		since = uint64(max(w.o.Since.UnixMicro(), 0)) << 10
	}
	actor, subject, at, number2, rkey := number("actor", false, true), number("subject", false, false), moment("time"), clock("clock"), text("rkey", true, false)
	return w.table(edges+"/"+k.Name, part, true, []*column{actor, subject, at, number2, rkey}, func(t *table) error {
		var failed error
		last, lastNumber, lastKnown, told := dict.None, uint32(0), false, int64(0)
		err := w.store.View(ctx, func(r kv.Reader) error {
			return read.RecordsBetween(r, k.Kind, from, to, func(of dict.ID, rec *format.Record) bool {
				if of != last {
					last = of
					lastNumber, lastKnown = w.accounts.of(of)
				}
				if !lastKnown {
					failed = fmt.Errorf("tables: %w: actor %d has records, and no DID", dict.ErrMalformed, of)
					return false
				}
				if rec.Subject == dict.None || w.isHidden(lastNumber) || rec.Path.HasTime() && rec.Path.TID < since {
					return true
				}
				n, ok := subjects.of(rec.Subject)
				if !ok {
					failed = fmt.Errorf("tables: %w: subject %d of %s records has no string", dict.ErrMalformed, rec.Subject, k.Name)
					return false
				}
				if subjects == &w.accounts && w.isHidden(n) {
					return true
				}
				actor.addNumber(lastNumber)
				subject.addNumber(n)
				if rec.Path.HasTime() {
					at.addMoment(int64(rec.Path.TID >> 10)) // 54 bits
					number2.addNumber(uint32(rec.Path.TID & 1023))
					rkey.addNull()
				} else {
					at.addNull()
					number2.addNull()
					rkey.addText(rec.Path.AppendRkey(nil))
				}
				if failed = t.row(); failed != nil {
					return false
				}
				if t.Rows-told >= 1<<16 {
					w.tell(t.Rows - told)
					told = t.Rows
				}
				return true
			})
		})
		w.tell(t.Rows - told)
		return errors.Join(failed, err)
	})
}

func (w *writer) isHidden(account uint32) bool { return w.hidden[account/64]>>(account%64)&1 != 0 }

func (w *writer) tell(n int64) {
	w.telling.Lock()
	defer w.telling.Unlock()
	if w.told += n; w.o.Progress != nil && n > 0 {
		w.o.Progress(w.told)
	}
}

// finish writes the views, and the manifest.
func (w *writer) finish() error {
	if err := os.WriteFile(filepath.Join(w.o.Dir, "views.sql"), w.views(), 0o644); err != nil { // for others to read
		return fmt.Errorf("tables: %w", err)
	}
	b, err := json.MarshalIndent(w.m, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(w.o.Dir, "manifest.json"), append(b, '\n'), 0o644) // for others to read
	}
	if err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	return nil
}

// views returns views.sql, with a view for each kind.
func (w *writer) views() []byte {
	b := slices.Clone(views)
	for _, k := range w.kinds {
		b = fmt.Appendf(b, "\nCREATE OR REPLACE VIEW \"%s\" AS SELECT * FROM 'edges/%s/*.parquet';\n", k.Name, k.Name)
	}
	return b
}
