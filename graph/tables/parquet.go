package tables

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// rowsInGroup is the number of rows of a row group.
const rowsInGroup = 1 << 20

// A column is a column of the row group that is being filled. One of its slices is used.
type column struct {
	name     string
	node     schema.Node
	encoding parquet.Encoding // without a dictionary; PLAIN means none is set
	dict     bool
	nullable bool

	i32    []int32
	i64    []int64
	text   []parquet.ByteArray
	arena  []byte
	bools  []bool
	levels []int16 // of a nullable column: 1 for each value, 0 for each null
}

func required(nullable bool) parquet.Repetition {
	if nullable {
		return parquet.Repetitions.Optional
	}
	return parquet.Repetitions.Required
}

func logical(c *column, l schema.LogicalType, physical parquet.Type) *column {
	node, err := schema.NewPrimitiveNodeLogical(c.name, required(c.nullable), l, physical, -1, -1)
	if err != nil {
		panic(err) // the types are constants
	}
	c.node = node
	return c
}

// number is a column of uint32. Those that ascend are stored as differences.
func number(name string, nullable, ascends bool) *column {
	c := &column{name: name, nullable: nullable, encoding: parquet.Encodings.Plain}
	if ascends {
		c.encoding = parquet.Encodings.DeltaBinaryPacked
	}
	return logical(c, schema.NewIntLogicalType(32, false), parquet.Types.Int32)
}

// moment is a column of microseconds since 1970.
func moment(name string) *column {
	c := &column{name: name, nullable: true, encoding: parquet.Encodings.DeltaBinaryPacked}
	return logical(c, schema.NewTimestampLogicalType(true, schema.TimeUnitMicros), parquet.Types.Int64)
}

// clock is a column of the clock numbers of TIDs. An account has few different ones.
func clock(name string) *column {
	return logical(&column{name: name, nullable: true, dict: true}, schema.NewIntLogicalType(16, false), parquet.Types.Int32)
}

// text is a column of strings; few says that they are few.
func text(name string, nullable, few bool) *column {
	return logical(&column{name: name, nullable: nullable, dict: few, encoding: parquet.Encodings.Plain}, schema.StringLogicalType{}, parquet.Types.ByteArray)
}

// truth is a column of booleans.
func truth(name string) *column {
	c := &column{name: name}
	c.node = schema.NewBooleanNode(name, parquet.Repetitions.Required, -1)
	return c
}

func (c *column) addNumber(n uint32) {
	c.i32 = append(c.i32, int32(n)) // the bits of a uint32, as Parquet has them
	if c.nullable {
		c.levels = append(c.levels, 1)
	}
}

func (c *column) addMoment(micros int64) {
	c.i64 = append(c.i64, micros)
	c.levels = append(c.levels, 1)
}

// addText adds a copy of s.
func (c *column) addText(s []byte) {
	start := len(c.arena)
	c.arena = append(c.arena, s...)
	c.text = append(c.text, c.arena[start:len(c.arena):len(c.arena)])
	if c.nullable {
		c.levels = append(c.levels, 1)
	}
}

func (c *column) addTruth(b bool) { c.bools = append(c.bools, b) }

func (c *column) addNull() { c.levels = append(c.levels, 0) }

func (c *column) reset() {
	c.i32, c.i64, c.text, c.arena, c.bools, c.levels = c.i32[:0], c.i64[:0], c.text[:0], c.arena[:0], c.bools[:0], c.levels[:0]
}

// write writes the column to a row group.
func (c *column) write(w file.ColumnChunkWriter) (err error) {
	var levels []int16
	if c.nullable {
		levels = c.levels
	}
	switch w := w.(type) {
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(c.i32, levels, nil)
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(c.i64, levels, nil)
	case *file.ByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(c.text, levels, nil)
	case *file.BooleanColumnChunkWriter:
		_, err = w.WriteBatch(c.bools, levels, nil)
	}
	return errors.Join(err, w.Close())
}

// A table is a Parquet file being written.
type table struct {
	columns []*column
	f       *os.File // nil if it goes elsewhere
	name    string
	out     *bufio.Writer
	w       *file.Writer
	rows    int // in the columns
	Rows    int64
}

// newTable makes the file of a table. sorted says that the rows ascend by the first column.
func newTable(path, program string, sorted bool, columns ...*column) (*table, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	t, err := tableTo(f, program, sorted, columns...)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	t.f, t.name = f, path
	return t, nil
}

func tableTo(w io.Writer, program string, sorted bool, columns ...*column) (*table, error) {
	var nodes schema.FieldList
	options := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDictionaryDefault(false), parquet.WithStats(true),
		parquet.WithMaxRowGroupLength(rowsInGroup), parquet.WithCreatedBy(program), parquet.WithVersion(parquet.V2_LATEST), parquet.WithDataPageVersion(parquet.DataPageV1),
	}
	if sorted {
		options = append(options, parquet.WithSortingColumns([]parquet.SortingColumn{{ColumnIdx: 0}}))
	}
	for _, c := range columns {
		nodes = append(nodes, c.node)
		switch {
		case c.dict:
			options = append(options, parquet.WithDictionaryFor(c.name, true))
		case c.encoding != parquet.Encodings.Plain:
			options = append(options, parquet.WithEncodingFor(c.name, c.encoding))
		}
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	out := bufio.NewWriterSize(w, 1<<20)
	return &table{columns: columns, out: out, w: file.NewParquetWriter(struct{ io.Writer }{out}, root, file.WithWriterProps(parquet.NewWriterProperties(options...)))}, nil
}

// row is called after a value has been added to each column.
func (t *table) row() error {
	t.Rows++
	if t.rows++; t.rows < rowsInGroup {
		return nil
	}
	return t.flush()
}

func (t *table) flush() error {
	if t.rows == 0 {
		return nil
	}
	t.rows = 0
	g, err := t.w.AppendRowGroupChecked()
	if err != nil {
		return fmt.Errorf("tables: %s: %w", t.name, err)
	}
	for _, c := range t.columns {
		w, err := g.NextColumn()
		if err == nil {
			err = c.write(w)
		}
		if err != nil {
			return fmt.Errorf("tables: %s: %w", t.name, err)
		}
		c.reset()
	}
	if err := g.Close(); err != nil {
		return fmt.Errorf("tables: %s: %w", t.name, err)
	}
	return nil
}

// close writes the rest, and syncs the file. After an error of another method, it only releases what
// the table holds.
func (t *table) close(failed error) error {
	if failed != nil {
		_ = t.f.Close() // nobody reads it
		return failed
	}
	err := t.flush()
	if err == nil {
		err = errors.Join(t.w.Close(), t.out.Flush(), t.f.Sync())
	}
	if err = errors.Join(err, t.f.Close()); err != nil {
		return fmt.Errorf("tables: %s: %w", t.name, err)
	}
	return nil
}

// Members writes a set, or a ranking, as one Parquet file.
type Members struct {
	t             *table
	member, count *column
}

// NewMembers begins a file with the column member, and with count if counts is set.
func NewMembers(w io.Writer, program string, counts bool) (*Members, error) {
	m := &Members{member: text("member", false, false)}
	columns := []*column{m.member}
	if counts {
		m.count = number("count", false, false)
		columns = append(columns, m.count)
	}
	var err error
	m.t, err = tableTo(w, program, false, columns...)
	return m, err
}

// Add adds a row.
func (m *Members) Add(member string, count uint32) error {
	m.member.addText([]byte(member))
	if m.count != nil {
		m.count.addNumber(count)
	}
	return m.t.row()
}

// Close completes the file.
func (m *Members) Close() error {
	if err := errors.Join(m.t.flush(), m.t.w.Close(), m.t.out.Flush()); err != nil {
		return fmt.Errorf("tables: %w", err)
	}
	return nil
}
