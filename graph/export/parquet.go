package export

import (
	"bufio"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// rowsInGroup is the number of rows of a row group, and rowsAtOnce that of rows that wait to be
// divided into columns.
const (
	rowsInGroup = 1 << 20
	rowsAtOnce  = 1 << 10
)

// Parquet writes a Parquet file. A T is a row: a struct whose fields have tags of parquet-go, and a
// pointer is nil for null. Memory holds one compressed row group at most.
type Parquet[T any] struct {
	out  *bufio.Writer
	w    *parquet.GenericWriter[T]
	rows []T
	n    int64
}

// NewParquet begins a file. The rows ascend by the column sorted, if it is not "".
func NewParquet[T any](w io.Writer, program, sorted string) *Parquet[T] {
	out := bufio.NewWriterSize(w, 1<<20)
	options := []parquet.WriterOption{
		&parquet.WriterConfig{CreatedBy: program},
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowsInGroup),
		parquet.PageBufferSize(1 << 20),
		parquet.DataPageVersion(1),
		parquet.DefaultEncodingFor(parquet.Int64, &parquet.DeltaBinaryPacked), // times
		parquet.DefaultEncodingFor(parquet.ByteArray, &parquet.Plain),
	}
	if sorted != "" {
		options = append(options, parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending(sorted))))
	}
	return &Parquet[T]{out: out, w: parquet.NewGenericWriter[T](out, options...), rows: make([]T, 0, rowsAtOnce)}
}

// Add adds a row.
func (p *Parquet[T]) Add(row T) error {
	p.n++
	if p.rows = append(p.rows, row); len(p.rows) < rowsAtOnce {
		return nil
	}
	return p.write()
}

func (p *Parquet[T]) write() error {
	_, err := p.w.Write(p.rows)
	p.rows = p.rows[:0]
	if err != nil {
		return fmt.Errorf("export: writing Parquet: %w", err)
	}
	return nil
}

// Close completes the file.
func (p *Parquet[T]) Close() error {
	err := p.write()
	if err == nil {
		err = p.w.Close()
	}
	if err == nil {
		err = p.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("export: completing a Parquet file: %w", err)
	}
	return nil
}
