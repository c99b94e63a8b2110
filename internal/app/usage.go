package app

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// Stats are what skein stats prints.
type Stats struct {
	Store     string           `json:"store"`
	Engine    string           `json:"engine"`
	DiskBytes uint64           `json:"diskBytes"`
	Records   int64            `json:"records"`
	Cursors   []format.Cursor  `json:"cursors"`
	Keyspaces []check.Keyspace `json:"keyspaces"`
	Counts    format.Counts    `json:"counts"`
}

// ReadStats reads what a store holds.
func ReadStats(ctx context.Context, path string, store kv.Store) (*Stats, error) {
	st := &Stats{Store: path, Engine: store.Engine(), DiskBytes: store.DiskBytes()}
	_, err := store.ViewAcross(ctx, func(r kv.Reader) error { // the numbers are estimates anyway
		h, err := read.Header(r)
		if err == nil {
			st.Counts, err = read.Counts(r)
		}
		if err == nil {
			st.Cursors, err = read.Cursors(r)
		}
		if err == nil {
			st.Keyspaces, err = check.Usage(r, h.Table, store)
		}
		return err
	})
	for _, n := range st.Counts.Records {
		st.Records += n
	}
	return st, err
}

// Write writes the numbers, rounded for people.
func (st *Stats) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s, %s on disk\n\n", st.Store, st.Engine, say.Bytes(st.DiskBytes))
	c := &st.Counts
	for _, name := range slices.Sorted(maps.Keys(c.Records)) {
		fmt.Fprintf(w, "%s records\t%s\n", name, say.Count(c.Records[name]))
	}
	fmt.Fprintf(w, "accounts\t%s (%s inactive, %s without full history, %s with missed events)\n", say.Count(c.Accounts), say.Count(c.Hidden), say.Count(c.Partial), say.Count(c.Desynchronized))
	fmt.Fprintf(w, "strings\t%s DIDs, %s AT URIs\n", say.Count(c.Strings["did"]), say.Count(c.Strings["uri"]))
	for _, c := range st.Cursors {
		fmt.Fprintf(w, "cursor\t%s: seq %d, event time %s\n", c.Source, c.Seq, c.Time.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(w, "\nkeyspace\tbytes\tbytes per edge\n")
	all := check.Keyspace{Name: "all"}
	for _, s := range st.Keyspaces {
		if s.Bytes > 0 { // 0: it is in the log only
			st.writeRow(w, s)
		}
		all.Bytes += s.Bytes
	}
	st.writeRow(w, all)
	return w.Flush()
}

func (st *Stats) writeRow(w io.Writer, s check.Keyspace) {
	fmt.Fprintf(w, "%s\t%s\t%.2f\n", s.Name, say.Bytes(s.Bytes), float64(s.Bytes)/float64(max(st.Records, 1)))
}
