package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
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

// ReadStats reads what a store holds. progress receives the number of keys read.
func ReadStats(ctx context.Context, path string, store kv.Store, progress func(keys int64)) (*Stats, error) {
	st := &Stats{Store: path, Engine: store.Engine(), DiskBytes: store.DiskBytes()}
	var table *kinds.Table
	_, err := store.ViewAcross(ctx, func(r kv.Reader) (err error) { // the numbers are estimates anyway
		if st.Counts, st.Cursors, table, err = check.Totals(r); err == nil {
			st.Keyspaces, err = check.Usage(r, table, store, progress)
		}
		return err
	})
	for _, n := range st.Counts.Records {
		st.Records += n
	}
	return st, err
}

// Write writes the numbers, rounded for people.
func (st *Stats) Write(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %s on disk\n\n", st.Store, st.Engine, say.Bytes(st.DiskBytes))
	c := &st.Counts
	names := slices.Collect(maps.Keys(c.Records)) // sorted with the built-in kinds first
	order := func(name string) int {
		if k := kinds.ByName(name); k != nil {
			return int(k.Kind)
		}
		return kinds.Max
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b)) })
	for _, name := range names {
		fmt.Fprintf(w, "%-21s %s\n", name+" records", say.Count(c.Records[name]))
	}
	fmt.Fprintf(w, "%-21s %s (%s inactive, %s without full history, %s with missed events)\n", "accounts",
		say.Count(c.Accounts), say.Count(c.Hidden), say.Count(c.Partial), say.Count(c.Desynchronized))
	fmt.Fprintf(w, "%-21s %s DIDs, %s AT URIs\n", "strings", say.Count(c.Strings["did"]), say.Count(c.Strings["uri"]))
	for _, c := range st.Cursors {
		fmt.Fprintf(w, "%-21s %s: seq %d%s\n", "cursor", c.Source, c.Seq, at(c.Time))
	}
	fmt.Fprintln(w)
	WriteUsage(w, st.Keyspaces, st.Records, false)
}

func at(t time.Time) string {
	if t.Unix() <= 0 {
		return ""
	}
	return ", event time " + t.UTC().Format(time.RFC3339)
}

// WriteUsage writes the keys and bytes of each keyspace as a Markdown table. It divides the bytes
// by edges, the number of live records. Numbers are rounded for people unless exact is set.
func WriteUsage(w io.Writer, spaces []check.Keyspace, edges int64, exact bool) {
	count, size := func(n int64) string { return say.Count(n) }, func(n uint64) string { return say.Bytes(n) }
	if exact {
		count, size = func(n int64) string { return fmt.Sprint(n) }, func(n uint64) string { return fmt.Sprint(n) }
	}
	row := func(name string, keys int64, bytes uint64, strong string) {
		k, b, per := count(keys), size(bytes), "–"
		if bytes == 0 && keys > 0 {
			b = "–" // the engine cannot tell
		}
		if keys == 0 {
			k = "–"
		}
		if edges > 0 && bytes > 0 {
			per = strong + fmt.Sprintf("%.2f", float64(bytes)/float64(edges)) + strong
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", strong+name+strong, k, b, per)
	}
	fmt.Fprintln(w, "| keyspace | keys | bytes | bytes per edge |")
	fmt.Fprintln(w, "|---|--:|--:|--:|")
	var keys int64
	var bytes uint64
	for _, s := range spaces {
		if s.Keys == 0 && s.Bytes == 0 {
			continue
		}
		row(s.Name, s.Keys, s.Bytes, "")
		keys += s.Keys
		bytes += s.Bytes
	}
	row("all", keys, bytes, "**")
}
