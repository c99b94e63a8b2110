package app

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"skein.blue/intern"
	"skein.blue/intern/dict"
)

// WriteAudit writes the leases, the unused ids and the capacity left as tables.
func WriteAudit(out io.Writer, leases []intern.AuditedLease, left []intern.Capacity) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("NAMESPACE\tSHARD\tBLOCK\tPARTITION\tFIRST ID\tTAKEN\tOWNER\tUSED\tUNUSED\tREASON")
	type sum struct{ leases, lost int }
	gaps := map[intern.Unused]sum{}
	for _, l := range leases {
		part := "-"
		if l.Namespace == dict.DID {
			part = fmt.Sprint(l.Partition)
		}
		row("%s\t%d\t%d\t%s\t%d\t%s\t%s\t%d\t%d\t%s", l.Namespace, l.Shard, l.Block, part, uint64(l.First),
			l.Taken.UTC().Format(time.RFC3339), l.Owner, l.Strings, l.Lost, l.Unused)
		if l.Lost > 0 {
			s := gaps[l.Unused]
			gaps[l.Unused] = sum{s.leases + 1, s.lost + l.Lost}
		}
	}
	row("")
	for _, g := range []intern.Unused{intern.UnusedOpen, intern.UnusedClosed, intern.UnusedCrash} {
		if s := gaps[g]; s.leases > 0 {
			row("%d ids of %d leases: %s", s.lost, s.leases, g)
		}
	}
	row("")
	row("NAMESPACE\tSHARDS IN USE\tLEASES\tIDS LEASED\tLEFT\tFIVE-BYTE IDS LEFT\tPER DAY\tTIME LEFT")
	for _, c := range left {
		perDay, lasts := "-", "longer than a century"
		if c.PerDay > 0 {
			perDay = fmt.Sprintf("%.3g", c.PerDay)
		}
		if c.Exhausted > 0 {
			lasts = fmt.Sprintf("%.1f years", c.Exhausted.Hours()/24/365)
		}
		row("%s\t%d\t%d\t%.0f\t%.3g\t%.3g\t%s\t%s", c.Namespace, c.Shards, c.Leases, c.Ids, c.Left, c.LeftShort, perDay, lasts)
	}
	row("")
	row("NAMESPACE\tFULLEST SHARDS\tLEASES\tSHARE OF ITS IDS LEASED")
	for _, c := range left {
		for _, use := range c.Fullest {
			row("%s\t%d\t%d\t%.3g%%", c.Namespace, use.Shard, use.Leases, 100*use.Share)
		}
	}
	_ = w.Flush()
}
