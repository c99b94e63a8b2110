package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/graph/fence"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
)

func idsCommand(e *command.Environment) *cli.Command {
	audit := storeCommand("audit", "list the leases (blocks of ids that writers reserved), count the skipped ids for each reason, and count the ids still available", func(ctx context.Context, path string, store kv.Store) error {
		return auditIDs(ctx, e, path, store)
	})
	s := &command.Settings{}
	var byID bool
	resolve := &cli.Command{
		Name: "resolve", Usage: "show the ids of DIDs and AT URIs; with --id, show the DIDs and AT URIs of ids", ArgsUsage: "STRING… | --id N…",
		Flags: []cli.Flag{s.StoreFlag(), &cli.BoolFlag{Name: "id", Usage: "treat the arguments as ids", Destination: &byID}},
		Action: func(ctx context.Context, c *cli.Command) error {
			if !c.Args().Present() {
				return command.UsageError("ids resolve needs DIDs or AT URIs, or ids with --id")
			}
			asked, err := parseAsked(c.Args().Slice(), byID)
			if err != nil {
				return err
			}
			return withStore(ctx, s.Store, func(store kv.Store) error { return resolveIDs(ctx, e, store, asked) })
		},
	}
	return &cli.Command{
		Name: "ids", Usage: "look up the internal ids of DIDs and AT URIs, and show how ids are used", Commands: []*cli.Command{audit, resolve},
		Action: command.ChooseCommand,
	}
}

// asked is an argument of ids resolve: a string, or an id.
type asked struct {
	ns dict.Namespace // of a string
	s  string
	id dict.ID
}

func parseAsked(args []string, byID bool) (all []asked, err error) {
	for _, a := range args {
		if byID {
			n, err := strconv.ParseUint(a, 0, 64)
			if err != nil || n == 0 {
				return nil, command.UsageError("ids resolve --id %q: an id is a number, 1 or greater", a)
			}
			all = append(all, asked{s: a, id: dict.ID(n)})
			continue
		}
		switch {
		case dict.DID.Valid([]byte(a)):
			all = append(all, asked{dict.DID, a, 0})
		case dict.URI.Valid([]byte(a)):
			all = append(all, asked{dict.URI, a, 0})
		default:
			return nil, command.UsageError("ids resolve %q: neither a DID nor an AT URI", a)
		}
	}
	return all, nil
}

func resolveIDs(ctx context.Context, e *command.Environment, store kv.Store, all []asked) error {
	missing := 0
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tID\tSTRING\tSHARD\tBLOCK\tPARTITION\tLEASED BY")
	err := store.View(ctx, func(r kv.Reader) error {
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
				missing++
				fmt.Fprintf(e.Stderr, "%s: not in the store\n", a.s)
			}
		}
		return nil
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("ids resolve: %w", err)
	}
	if missing > 0 {
		return command.ErrQuiet
	}
	return nil
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
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", res.Namespace, res.ID, human.Line(res.String), shard, block, part, by)
}

// auditIDs lists the leases. They may change during the reading if another process writes to the
// store.
func auditIDs(ctx context.Context, e *command.Environment, path string, store kv.Store) error {
	var writers map[string]bool
	var settings dict.Settings
	var leases []intern.AuditedLease
	var left []intern.Capacity
	p := e.Progress("rows", 0)
	rows := int64(0)
	crossed, err := store.ViewAcross(ctx, func(r kv.Reader) (err error) {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		settings = h.Settings
		if writers, err = fence.Writers(r); err != nil {
			return err
		}
		left, err = intern.Audit(r, settings, func(owner string) bool { return writers[owner] }, func(l intern.AuditedLease) error {
			leases = append(leases, l)
			return nil
		}, func() error {
			if rows++; rows%65536 == 0 {
				p.Tell(rows)
			}
			return ctx.Err()
		})
		return err
	})
	p.End()
	if err != nil {
		return fmt.Errorf("ids audit: %w", err)
	}
	fmt.Fprintf(e.Stdout, "%s: %s\n\n", path, settings)
	app.WriteAudit(e.Stdout, leases, left)
	if crossed > 0 && len(writers) > 0 {
		fmt.Fprintln(e.Stdout, "\nThe store changed during the audit: open leases may be counted at different moments.")
	}
	return nil
}
