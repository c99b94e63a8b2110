package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"skein/graph"
	"skein/internal/app"
	"skein/internal/kv"
)

func statsCommand(e *environment) *cli.Command {
	return storeCommand("stats", "say what is in the store, and where its bytes are", func(ctx context.Context, path string, store kv.Store) error {
		var crossed atomic.Int64 // the numbers are estimates anyway
		ctx = kv.AllowCrossing(ctx, &crossed)
		counts, cursors, err := graph.Totals(ctx, store)
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		p := e.progress("%d keys counted")
		spaces, err := graph.Usage(ctx, store, p.tell)
		p.end()
		if err != nil {
			return fmt.Errorf("stats: %w", err)
		}
		fmt.Fprintf(e.stdout, "%s: %s, %d bytes on disk\n\n", path, store.Engine(), store.DiskBytes())
		edges := int64(0)
		for _, k := range graph.Kinds {
			fmt.Fprintf(e.stdout, "%-15s %d\n", k.Name+" records", counts.Records[k.Name])
			edges += counts.Records[k.Name]
		}
		fmt.Fprintf(e.stdout, "%-15s %d, of them hidden %d, partial %d, desynchronized %d\n", "accounts", counts.Accounts, counts.Hidden, counts.Partial, counts.Desynchronized)
		fmt.Fprintf(e.stdout, "%-15s %d DIDs, %d AT URIs\n", "strings", counts.Strings["did"], counts.Strings["uri"])
		for _, c := range cursors {
			fmt.Fprintf(e.stdout, "%-15s %s: seq %d%s\n", "cursor", c.Source, c.Seq, at(c.Time))
		}
		fmt.Fprintln(e.stdout)
		app.WriteUsage(e.stdout, spaces, edges)
		return nil
	})
}

func at(t time.Time) string {
	if t.Unix() <= 0 {
		return ""
	}
	return ", an event of " + t.UTC().Format(time.RFC3339)
}

// progress shows a number that grows, on a terminal.
type progress struct {
	e      *environment
	format string
	told   bool
}

func (e *environment) progress(format string) *progress { return &progress{e: e, format: format} }

func (p *progress) tell(n int64) {
	if p.e.terminal() {
		p.told = true
		fmt.Fprintf(p.e.stderr, "\r\033[K"+p.format, n)
	}
}

func (p *progress) end() {
	if p.told {
		fmt.Fprint(p.e.stderr, "\r\033[K")
	}
}
