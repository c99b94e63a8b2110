package query

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"

	"skein.blue/intern/dict"
	"skein.blue/internal/identities"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// A table is a page of an answer as rows. A cell is a string, a number (uint64), or nil if it has no value.
type table struct {
	columns []column // the first has the accounts or records that the rows are about
	rows    [][]any
	cursor  string // of the next page
	total   any    // of all pages; nil: unknown
}

type column struct {
	name   string
	number bool
}

// A tabular answer can be written as a table.
type tabular interface {
	table() *table
	about() *caveats
}

func (c *caveats) about() *caveats { return c }

// tableOf returns structs as rows. The columns are named as in JSON; one that JSON may omit is there if a row has it.
func tableOf[T any](items []T, cursor string, total any) *table {
	t := &table{cursor: cursor, total: total, rows: make([][]any, len(items))}
	for f := range reflect.TypeFor[T]().Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		is, used := f.Type, options == ""
		if is.Kind() == reflect.Pointer {
			is = is.Elem()
		}
		cells := make([]any, len(items))
		for i := range items {
			switch v := reflect.Indirect(reflect.ValueOf(&items[i]).Elem().FieldByIndex(f.Index)); {
			case !v.IsValid() || v.IsZero() && options == "omitempty" && f.Type == is:
				continue
			case v.CanUint():
				cells[i] = v.Uint()
			default:
				cells[i] = v.String()
			}
			used = true
		}
		if used {
			t.add(column{name, is.Kind() != reflect.String}, len(t.columns), func(i int) any { return cells[i] })
		}
	}
	return t
}

// add inserts a column.
func (t *table) add(c column, at int, cell func(row int) any) {
	t.columns = slices.Insert(t.columns, at, c)
	for i, row := range t.rows {
		t.rows[i] = slices.Insert(row, at, cell(i))
	}
}

// A format is one that tables are written in.
type format struct {
	contentType string
	write       func(t *table) ([]byte, error)
}

// formats are the values of the parameter format beside json.
var formats = map[string]format{
	"csv":     {"text/csv; charset=utf-8; header=present", (*table).csv},
	"jsonl":   {"application/x-ndjson", (*table).jsonl},
	"parquet": {"application/vnd.apache.parquet", (*table).parquet},
}

// A formatted answer is a table in a format.
type formatted struct {
	tabular
	format
}

// form checks the parameters format, names and proof of a call.
func (s *Server) form(q *xrpc.Query) error {
	if f := q.Values.Get("format"); q.Values.Has("format") && f != "json" && formats[f].write == nil {
		return xrpc.Invalid("parameter format is %q; it must be json, csv, jsonl or parquet", language.Brief(f))
	}
	if q.Boolean("names") && s.o.Handles == nil {
		return xrpc.Invalid("names=true does not work here: %v", identities.ErrOff)
	}
	q.Boolean("proof")
	return q.Err()
}

// finish gives an answer the handles and the format that the call asked for.
func (s *Server) finish(ctx context.Context, q *xrpc.Query, answer any) (any, error) {
	t, ok := answer.(tabular)
	if !ok {
		return answer, nil
	}
	if q.Boolean("names") {
		var err error
		if t.about().Handles, err = s.handlesOf(ctx, q, t.table()); err != nil {
			return nil, err
		}
	}
	if f, ok := formats[q.Values.Get("format")]; ok {
		return formatted{t, f}, nil
	}
	return answer, nil
}

// namesWithin bounds the time in which handles of one answer are looked up, and namesAtOnce how many are at once.
const (
	namesWithin = 2 * time.Second
	namesAtOnce = 16
)

// handlesOf returns the handles of the accounts in a table, and of the authors of its records: those that are known or can be looked
// up soon. A handle counts if its account's DID document has it and it leads to this DID.
func (s *Server) handlesOf(ctx context.Context, q *xrpc.Query, t *table) (map[string]string, error) {
	q.Work.Leave() // slow hosts delay nobody else
	ctx, cancel := context.WithTimeout(identities.ForClient(ctx, q.Work.Client), namesWithin)
	defer cancel()
	dids := map[string]bool{}
	for _, row := range t.rows {
		dids[accountOf(row[0])] = true
	}
	delete(dids, "")
	var mu sync.Mutex
	found := map[string]string{}
	done := make(chan error, 1)
	go func() {
		var g errgroup.Group
		g.SetLimit(namesAtOnce)
		for did := range dids {
			g.Go(func() error {
				handle, err := s.o.Handles.HandleOf(ctx, did)
				if errors.Is(err, identities.ErrOff) {
					return xrpc.Invalid("names=true does not work here: %v", err)
				}
				if err == nil && handle != "" { // else it stays unknown
					mu.Lock()
					found[did] = handle
					mu.Unlock()
				}
				return nil
			})
		}
		done <- g.Wait()
	}()
	select {
	case err := <-done:
		return found, err
	case <-ctx.Done(): // look-ups that have begun end in time, for the next page (identities.Broker)
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(found), nil
	}
}

// accountOf returns the account that a cell names, or the author of the record, "" if it is neither.
func accountOf(cell any) string {
	s, _ := cell.(string)
	if did, ok := dict.AuthorOf(s); ok || dict.ValidDID(s) {
		return cmp.Or(did, s)
	}
	return ""
}

// of returns an answer in a format. Headers stand for what tables have no place for: the next page, the total, and why the answer may
// be incomplete.
func (f formatted) of(h http.Header, r *http.Request) ([]byte, error) {
	t, about := f.table(), f.about()
	if about.Handles != nil {
		t.add(column{name: "handle"}, 1, func(i int) any {
			if handle, ok := about.Handles[accountOf(t.rows[i][0])]; ok {
				return handle
			}
			return nil
		})
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Access-Control-Expose-Headers", "Link, Skein-As-Of, Skein-Cursor, Skein-Total, Skein-Incomplete, Skein-Sample")
	if t.cursor != "" && r.Method != http.MethodPost && len(r.URL.RawQuery) <= 1<<10 { // Encode may triple it, and nginx fails on 4 KiB
		values := r.URL.Query()
		values.Set("cursor", t.cursor)
		h.Set("Link", "<"+r.URL.Path+"?"+values.Encode()+`>; rel="next"`)
	}
	for name, value := range map[string]string{"Skein-Cursor": t.cursor, "Skein-Total": text(t.total), "Skein-Incomplete": about.Reason, "Skein-Sample": about.Sample} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return f.write(t)
}

// text returns a cell as text.
func text(cell any) string { return fmt.Sprint(cmp.Or(cell, any(""))) }

func (t *table) csv() ([]byte, error) {
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	line := make([]string, len(t.columns))
	for i, c := range t.columns {
		line[i] = c.name
	}
	_ = out.Write(line) // a buffer never fails
	for _, row := range t.rows {
		for i, cell := range row {
			line[i] = text(cell)
		}
		_ = out.Write(line)
	}
	out.Flush()
	return b.Bytes(), out.Error()
}

// objects returns the rows without their cells that have no value.
func (t *table) objects() []map[string]any {
	all := make([]map[string]any, len(t.rows))
	for n, row := range t.rows {
		all[n] = map[string]any{}
		for i, cell := range row {
			if cell != nil {
				all[n][t.columns[i].name] = cell
			}
		}
	}
	return all
}

// jsonl returns an object a line.
func (t *table) jsonl() ([]byte, error) {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	for _, o := range t.objects() {
		if err := lines.Encode(o); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// parquet returns a file in which columns of text may be null.
func (t *table) parquet() ([]byte, error) {
	columns := parquet.Group{}
	for _, c := range t.columns {
		if columns[c.name] = parquet.Optional(parquet.String()); c.number { // which each row has
			columns[c.name] = parquet.Int(64)
		}
	}
	var b bytes.Buffer
	out := parquet.NewGenericWriter[map[string]any](&b, parquet.NewSchema("answer", columns))
	_, err := out.Write(t.objects())
	err = errors.Join(err, out.Close())
	return b.Bytes(), err
}
