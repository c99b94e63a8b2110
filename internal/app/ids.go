package app

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// askedID is an argument of ids resolve: a string, or an id.
type askedID struct {
	ns dict.Namespace // of a string
	s  string
	id dict.ID
}

// ParseIDs reads the arguments of skein ids resolve. byID says that they are ids.
func ParseIDs(args []string, byID bool) (all IDs, err error) {
	for _, a := range args {
		if byID {
			n, err := strconv.ParseUint(a, 0, 64)
			if err != nil || n == 0 {
				return nil, UsageError("ids resolve --id %q: an id is a number, 1 or greater", a)
			}
			all = append(all, askedID{s: a, id: dict.ID(n)})
			continue
		}
		switch {
		case dict.DID.Valid([]byte(a)):
			all = append(all, askedID{dict.DID, a, 0})
		case dict.URI.Valid([]byte(a)):
			all = append(all, askedID{dict.URI, a, 0})
		default:
			return nil, UsageError("ids resolve %q: neither a DID nor an AT URI", a)
		}
	}
	return all, nil
}

// An IDs is a question to the dictionary: DIDs and AT URIs, or ids.
type IDs []askedID

// Resolve writes the id and the lease of each string, or the string of each id, as a table. missing are those that the store
// does not have.
func (all IDs) Resolve(ctx context.Context, store kv.Store, out io.Writer) (missing []string, err error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tID\tSTRING\tSHARD\tBLOCK\tPARTITION\tLEASED BY")
	err = store.View(ctx, func(r kv.Reader) error {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		for _, a := range all {
			found := false
			for _, ns := range dict.Namespaces {
				var res intern.Resolved
				var ok bool
				var err error
				if a.id != dict.None {
					res, ok, err = intern.ResolveID(r, h.Settings, ns, a.id)
				} else if a.ns == ns {
					res, ok, err = intern.ResolveString(r, h.Settings, ns, a.s)
				}
				if err != nil {
					return err
				}
				if ok {
					found = true
					writeResolved(w, &res)
				}
			}
			if !found {
				missing = append(missing, a.s)
			}
		}
		return nil
	})
	if err == nil {
		err = w.Flush()
	}
	return missing, err
}

func writeResolved(w io.Writer, res *intern.Resolved) {
	shard, block, by := "-", "-", "no lease: run skein check"
	if l := res.Lease; l != nil {
		shard, block = fmt.Sprint(l.Shard), fmt.Sprint(l.Block)
		by = fmt.Sprintf("%s, %s", l.Owner, l.Taken.UTC().Format(time.RFC3339))
	}
	part := "-"
	if res.Namespace == dict.DID {
		part = fmt.Sprint(res.Partition)
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", res.Namespace, res.ID, say.Line(res.String), shard, block, part, by)
}

// AuditIDs writes the leases, the unused ids, and the capacity left as tables. They may change during the reading if another
// process writes to the store. progress receives the number of rows read.
func AuditIDs(ctx context.Context, store kv.Store, out io.Writer, progress func(rows int64)) error {
	var writers map[string]bool
	var settings dict.Settings
	var leases []intern.AuditedLease
	var left []intern.Capacity
	rows := int64(0)
	crossed, err := store.ViewAcross(ctx, func(r kv.Reader) (err error) {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		settings = h.Settings
		if writers, err = graph.Writers(r); err != nil {
			return err
		}
		left, err = intern.Audit(r, settings, func(owner string) bool { return writers[owner] }, func(l intern.AuditedLease) error {
			leases = append(leases, l)
			return nil
		}, func() error {
			if rows++; rows%65536 == 0 {
				progress(rows)
			}
			return ctx.Err()
		})
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", settings)
	writeAudit(out, leases, left)
	if crossed > 0 && len(writers) > 0 {
		fmt.Fprintln(out, "\nThe store changed during the audit: open leases may be counted at different moments.")
	}
	return nil
}

func writeAudit(out io.Writer, leases []intern.AuditedLease, left []intern.Capacity) {
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
