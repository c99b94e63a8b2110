package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

const targetUsage = "TARGET is a folder or s3://BUCKET/PREFIX (with the usual variables AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"

func backupCommand(e *command.Environment) *cli.Command {
	var a admin
	store := app.StoreOptions{Memory: 64 << 20}
	j := app.BackupJob{CreateOptions: backup.CreateOptions{Program: "skein " + command.Version()}}
	return &cli.Command{
		Name: "backup", Usage: "back up the store of a running daemon, or another one, to a folder or bucket", ArgsUsage: "TARGET",
		Description: "Sends what the target lacks. The daemon goes on indexing and answering. " + targetUsage + ".",
		Flags:       append(append(a.flags("admin URL of the daemon on this machine whose store to back up"), closedFlag(&store)), makeFlags(&j)...),
		Action: func(ctx context.Context, c *cli.Command) error {
			to, err := oneTarget(c)
			if err != nil {
				return err
			}
			if err := aim(&j, "", to); err != nil {
				return err
			}
			return backUp(ctx, e, &a, store, &j)
		},
	}
}

// closedFlag returns the flag for a store that no process has open.
func closedFlag(o *app.StoreOptions) cli.Flag {
	return &cli.StringFlag{Name: "store", DefaultText: "that of the daemon", Usage: "store to read without a daemon. None may have it open, unless it is on FoundationDB", Destination: &o.Store}
}

// makeFlags returns the flags for making backups.
func makeFlags(j *app.BackupJob) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "backup-sign", DefaultText: "no signature", Usage: "file of the minisign secret key that signs the backup, if others restore it and must check where it comes from; SKEIN_BACKUP_PASSWORD holds its password, if it has one. Make one with minisign -G", Validator: func(s string) (err error) {
			j.Signer, err = backup.ReadSigner(s, os.Getenv("SKEIN_BACKUP_PASSWORD"))
			return err
		}, Sources: command.Env("backup-sign")},
		&cli.IntFlag{Name: "backup-keep", DefaultText: "all", Usage: "how many backups to keep, if the target's space is not endless: after each backup, skein removes all but this many, the newest", Destination: &j.Keep, Validator: func(n int) error {
			if n < 0 {
				return errors.New("expected how many backups to keep, 1 or more")
			}
			return nil
		}, Sources: command.Env("backup-keep")},
	}
}

// openTarget opens the target that a flag, or an argument if flag is "", names.
func openTarget(flag, name string) (backup.Target, error) {
	t, err := backup.OpenTarget(name)
	if err != nil {
		return nil, command.UsageError("%s%v", flag, err)
	}
	return t, nil
}

// aim sets the target of a job.
func aim(j *app.BackupJob, flag, to string) (err error) {
	if backup.IsWeb(to) {
		return command.UsageError("%s%s is a web server, which cannot be written to; name a folder or s3://BUCKET/PREFIX", flag, to)
	}
	j.Target, err = openTarget(flag, to)
	return err
}

// reading is a target that is read.
type reading struct {
	target backup.Target
	trust  *backup.Trust // nil: signatures are not needed
}

// trustFlag returns the flag for the key that must have signed a backup.
func (r *reading) trustFlag() cli.Flag {
	return &cli.StringFlag{Name: "trust", Usage: "minisign public key (RW…), or a file that has it, that must have signed the backup; required for a backup from a web server", Validator: func(s string) (err error) { r.trust, err = backup.ParseTrust(s); return err }, Sources: command.Env("trust")}
}

// open opens the target. One on a web server must be signed to be believed.
func (r *reading) open(flag, from string, believed bool) (err error) {
	if believed && r.trust == nil && backup.IsWeb(from) {
		return command.UsageError("%s is a web server: name the key that signs its backups with --trust", from)
	}
	r.target, err = openTarget(flag, from)
	return err
}

// oneTarget returns the only argument of a command.
func oneTarget(c *cli.Command) (string, error) {
	if c.Args().Len() != 1 {
		return "", command.UsageError("skein %s needs one argument, the target: %s", c.Name, targetUsage)
	}
	return c.Args().First(), nil
}

// backUp backs up the store of a running daemon, or one that no process has open.
func backUp(ctx context.Context, e *command.Environment, a *admin, so app.StoreOptions, j *app.BackupJob) (err error) {
	var c app.Checkpoint
	done := func(err error) error { return errors.Join(err, c.Remove()) }
	if so.Store == "" {
		c, done, err = a.lend(ctx)
	} else {
		c, err = app.CheckpointClosed(ctx, so)
	}
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	p := e.Progress("bytes")
	j.Progress = func(done, total int64) { p.Of(done, total, "backing up") }
	start := time.Now()
	r, err := j.Run(ctx, c)
	p.End()
	if err != nil && ctx.Err() != nil && r.Time.IsZero() {
		return errors.New("interrupted: the target has no new backup; run the same command again")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "%s backed up to %s as of %s; %s sent in %d parts, in %v\n", say.Bytes(r.Bytes), j.Target, r.Time.Format(time.RFC3339Nano), say.Bytes(r.Sent), r.Parts, time.Since(start).Round(10*time.Millisecond))
	if r.Removed > 0 {
		fmt.Fprintf(e.Stdout, "%d older backups removed, which frees %s\n", r.Removed, say.Bytes(r.Freed))
	}
	return nil
}
