package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

func restoreCommand(e *command.Environment) *cli.Command {
	var so app.StoreOptions
	var r reading
	var at time.Time
	var list bool
	return &cli.Command{
		Name: "restore", Usage: "restore a store from a backup", ArgsUsage: "TARGET",
		Description: "Writes the newest backup of TARGET to the folder of --store, which must not exist or be empty. If it is interrupted, the same command continues. " + targetUsage + ", or https://HOST/PATH.",
		Flags: []cli.Flag{
			command.StoreFlag(&so),
			&cli.StringFlag{Name: "at", DefaultText: "the newest backup", Usage: "restore the newest backup made at this time or before: 2026-11-25T12:00:00Z, 2026-11-25, or an age such as 24h", Validator: func(s string) (err error) { at, err = app.ParseTime(s); return err }},
			&cli.BoolFlag{Name: "list", Usage: "print the backups of TARGET, and restore nothing", Destination: &list},
			r.trustFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			from, err := oneTarget(c)
			if err != nil {
				return err
			}
			if err := r.open("", from, !list); err != nil {
				return err
			}
			if list && !at.IsZero() {
				return command.UsageError("--at has no effect with --list, which prints all backups")
			}
			if list {
				return listBackups(ctx, e, &r)
			}
			if !app.InFolder(so.Store) {
				return command.UsageError("--store %s: backups are restored into a folder; from there, skein export and skein import copy the store", so.Store)
			}
			if err := so.Check(); err != nil {
				return err
			}
			m, err := backup.Find(ctx, r.target, at, r.trust)
			if err != nil {
				return err
			}
			start := time.Now()
			err = restore(ctx, e, r.target, m, so.Store)
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("interrupted: %s is not a store yet; run the same command again, which continues", so.Store)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%s: restored as of %s (%s in %v): %s\n", so.Store, m.Time.Format(time.RFC3339Nano), say.Bytes(m.Bytes()), time.Since(start).Round(10*time.Millisecond), contents(m))
			return nil
		},
	}
}

func listBackups(ctx context.Context, e *command.Environment, r *reading) error {
	all, err := backup.List(ctx, r.target)
	if err != nil {
		return err
	}
	for _, at := range all {
		m, err := backup.Find(ctx, r.target, at, r.trust)
		if err != nil {
			fmt.Fprintf(e.Stdout, "%s  cannot be read: %s\n", at.Format(time.RFC3339Nano), say.Line(err.Error()))
			continue
		}
		fmt.Fprintf(e.Stdout, "%s  %s, %s\n", at.Format(time.RFC3339Nano), say.Bytes(m.Bytes()), contents(m))
	}
	if len(all) == 0 {
		return fmt.Errorf("%w in %s", backup.ErrNone, r.target)
	}
	return nil
}

// contents says what a backup holds.
func contents(m *backup.Manifest) string {
	records := int64(0)
	for _, n := range m.Store.Records {
		records += n
	}
	what := fmt.Sprintf("%s records of %s accounts", say.Count(records), say.Count(m.Store.Accounts))
	if m.Store.Source != "" {
		what += fmt.Sprintf(", %s at seq %d", say.Line(m.Store.Source), m.Store.Cursor)
	}
	if !m.Store.Complete {
		what += ", incomplete"
	}
	return what
}

// restore restores a backup into a folder. If it is interrupted, the next call continues.
func restore(ctx context.Context, e *command.Environment, t backup.Target, m *backup.Manifest, dir string) error {
	if err := app.CheckFormat(m); err != nil {
		return err
	}
	p := e.Progress("bytes")
	defer p.End()
	return backup.Restore(ctx, t, backup.RestoreOptions{Dir: dir, Manifest: m, Progress: func(done, total int64) { p.Of(done, total, "restoring") }})
}
