package app

import (
	"fmt"
	"io"

	"skein/graph"
)

// WriteUsage writes where the bytes of a store are, as a Markdown table. edges
// are its live records, over which the bytes are shared out.
func WriteUsage(w io.Writer, spaces []graph.Keyspace, edges int64) {
	per := func(bytes uint64) string {
		if edges == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", float64(bytes)/float64(edges))
	}
	fmt.Fprintln(w, "| keyspace | keys | bytes | bytes per edge |")
	fmt.Fprintln(w, "|---|--:|--:|--:|")
	var keys int64
	var bytes uint64
	for _, s := range spaces {
		if s.Keys == 0 && s.Bytes == 0 {
			continue
		}
		fmt.Fprintf(w, "| %s | %d | %d | %s |\n", s.Name, s.Keys, s.Bytes, per(s.Bytes))
		keys += s.Keys
		bytes += s.Bytes
	}
	fmt.Fprintf(w, "| **all** | %d | %d | **%s** |\n", keys, bytes, per(bytes))
}
