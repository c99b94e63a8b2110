package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
)

// storeStats is what skein stats --json prints.
type storeStats struct {
	Store     string           `json:"store"`
	Engine    string           `json:"engine"`
	DiskBytes uint64           `json:"diskBytes"`
	Records   int64            `json:"records"`
	Cursors   []format.Cursor  `json:"cursors"`
	Keyspaces []check.Keyspace `json:"keyspaces"`
	Counts    format.Counts    `json:"counts"`
}

func statsCommand(e *command.Environment) *cli.Command {
	var exact bool
	c := storeCommand("stats", "print what the store holds and how much space each part takes", func(ctx context.Context, path string, store kv.Store) error {
		st := storeStats{Store: path, Engine: store.Engine(), DiskBytes: store.DiskBytes()}
		p := e.Progress("keys", keysIn(store))
		var table *kinds.Table
		_, err := store.ViewAcross(ctx, func(r kv.Reader) (err error) { // the numbers are estimates anyway
			if st.Counts, st.Cursors, table, err = check.Totals(r); err != nil {
				return err
			}
			st.Keyspaces, err = check.Usage(r, table, store, p.Tell)
			return err
		})
		p.End()
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		for _, n := range st.Counts.Records {
			st.Records += n
		}
		if exact {
			out := json.NewEncoder(e.Stdout)
			out.SetIndent("", "  ")
			return out.Encode(&st)
		}
		st.write(e.Stdout)
		return nil
	})
	c.Flags = append(c.Flags, &cli.BoolFlag{Name: "json", Usage: "print exact numbers as JSON", Destination: &exact})
	return c
}

// write writes the numbers, rounded for people.
func (st *storeStats) write(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %s on disk\n\n", st.Store, st.Engine, human.Bytes(st.DiskBytes))
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
		fmt.Fprintf(w, "%-21s %s\n", name+" records", human.Count(c.Records[name]))
	}
	fmt.Fprintf(w, "%-21s %s (%s inactive, %s without full history, %s with missed events)\n", "accounts",
		human.Count(c.Accounts), human.Count(c.Hidden), human.Count(c.Partial), human.Count(c.Desynchronized))
	fmt.Fprintf(w, "%-21s %s DIDs, %s AT URIs\n", "strings", human.Count(c.Strings["did"]), human.Count(c.Strings["uri"]))
	for _, c := range st.Cursors {
		fmt.Fprintf(w, "%-21s %s: seq %d%s\n", "cursor", c.Source, c.Seq, at(c.Time))
	}
	fmt.Fprintln(w)
	app.WriteUsage(w, st.Keyspaces, st.Records, false)
}

func at(t time.Time) string {
	if t.Unix() <= 0 {
		return ""
	}
	return ", event time " + t.UTC().Format(time.RFC3339)
}
