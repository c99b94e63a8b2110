package chart

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"

	"skein.blue/internal/load"
)

// keyspaces names the keyspaces that grow (packages format and dict).
var keyspaces = map[string]string{"r": "records", "v": "sets", "k": "dates of sets", "a": "accounts", "i": "strings → ids", "x": "post groups", "s": "ids → strings", "o": "row groups"}

// Table writes a table in Markdown: for each run and phase what it did in all, with the bytes that were written
// for each record or event, by level of the LSM tree and by keyspace.
func Table(w io.Writer, runs []Run) error {
	lines := linesOf(runs)
	if len(lines) == 0 {
		return ErrEmpty
	}
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "| run | edges | done | per second | CPU µs each | lag p99, ms | peak MiB | arrived B | L0 B | other levels B | × | written by keyspace, B before compression |")
	fmt.Fprintln(out, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
	for _, l := range lines {
		all := load.Sample{}
		for i := range l.parts {
			add(&all, &l.parts[i])
		}
		each := func(n int64) float64 { return float64(n) / float64(all.Done) }
		first := int64(0)
		if len(all.Written) > 0 {
			first = all.Written[0]
		}
		fmt.Fprintf(out, "| %s | %d | %d | %.0f | %.2f | %.0f | %d | %.1f | %.1f | %.1f | %.1f | ", l.name, all.Edges, all.Done, float64(all.Done)/all.Seconds,
			all.CPU/float64(all.Done)*1e6, all.LagP99, all.Peak>>20, each(all.Arrived), each(first), each(sum(all.Written)-first), float64(sum(all.Written))/float64(all.Arrived))
		for i, k := range slices.Sorted(maps.Keys(all.Keyspaces)) {
			name := keyspaces[k]
			if name == "" {
				name = k
			}
			if i > 0 {
				fmt.Fprint(out, ", ")
			}
			fmt.Fprintf(out, "%s %.1f", name, each(all.Keyspaces[k]))
		}
		fmt.Fprintln(out, " |")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}
