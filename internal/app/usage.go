package app

import (
	"fmt"
	"io"

	"skein.blue/graph/check"
	"skein.blue/internal/human"
)

// WriteUsage writes the keys and bytes of each keyspace as a Markdown table. It divides the bytes
// by edges, the number of live records. Numbers are rounded for people unless exact is set.
func WriteUsage(w io.Writer, spaces []check.Keyspace, edges int64, exact bool) {
	count, size := func(n int64) string { return human.Count(n) }, func(n uint64) string { return human.Bytes(n) }
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
