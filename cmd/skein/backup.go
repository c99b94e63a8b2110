package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv/fdbkv"
)

const targetUsage = "TARGET is a folder or s3://BUCKET/PREFIX (with the usual variables AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"

func backupCommand(e *command.Environment) *cli.Command {
	var l lender
	j := app.BackupJob{Program: "skein " + command.Version()}
	return &cli.Command{
		Name: "backup", Usage: "back up a store, which may be in use, to a folder or bucket", ArgsUsage: "TARGET",
		Description: "Sends what the target lacks. The daemon goes on indexing and answering. " + targetUsage + ".",
		Flags:       append(l.flags("back up"), makeFlags(&j)...),
		Action: func(ctx context.Context, c *cli.Command) error {
			to, err := oneTarget(c)
			if err != nil {
				return err
			}
			if err := aim(&j, "", to); err != nil {
				return err
			}
			if err := l.read(c); err != nil {
				return err
			}
			return backUp(ctx, e, &l, &j)
		},
	}
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
		return nil, command.UsageError("%s%v", flag, strings.TrimPrefix(err.Error(), backup.ErrTarget.Error()+": "))
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

// backUpElsewhere prints the commands of FoundationDB's own tools that back up a store.
func backUpElsewhere(e *command.Environment, store, target string) error {
	l, err := locate(store, target)
	if err != nil {
		return err
	}
	return otherTools(e, l.BackupCommands(target), fmt.Sprintf("Nothing is backed up yet: %s is on FoundationDB, whose own tools do it. On a machine that can reach the cluster and write to %s, start the first command and let it run; then run the second. skein can go on:", store, target))
}

// restoreElsewhere prints the commands of FoundationDB's own tools that restore a store.
func restoreElsewhere(e *command.Environment, store, target string) error {
	l, err := locate(store, target)
	if err != nil {
		return err
	}
	return otherTools(e, l.RestoreCommands(target), fmt.Sprintf("Nothing is restored yet: %s is on FoundationDB, whose own tools do it, from a backup that they made. (A backup that skein made goes into a folder; from there, skein export and skein import copy it.) Stop all skein processes that use the store, and remove what is left of it: %s. On a machine that can reach the cluster and read %s, start the first command and let it run; then run the second:", store, l.ClearCommand(), target))
}

// locate returns where a store on FoundationDB is. The target must be a folder.
func locate(store, target string) (l fdbkv.Location, err error) {
	if l, err = fdbkv.Parse(store); err != nil {
		return l, command.UsageError("--store: %v", err)
	}
	if !filepath.IsAbs(target) {
		return l, command.UsageError("FoundationDB's own tools back up and restore %s. skein knows their commands for a folder, not for %s; for a bucket, see blobstore:// in FoundationDB's documentation", store, target)
	}
	return l, nil
}

// otherTools prints commands, and ends with an exit code that says that nothing was done.
func otherTools(e *command.Environment, commands []string, why string) error {
	fmt.Fprintln(e.Stderr, why)
	for _, line := range commands {
		fmt.Fprintln(e.Stdout, line)
	}
	return command.ErrQuiet
}

// backUp backs up the store of a running daemon, or one that no process has open.
func backUp(ctx context.Context, e *command.Environment, l *lender, j *app.BackupJob) (err error) {
	c, done, err := l.checkpoint(ctx, e)
	if no, ok := errors.AsType[*noCheckpoint](err); ok {
		return backUpElsewhere(e, no.store, j.Target.String())
	} else if err != nil {
		return err
	}
	store := storeOf(c)
	defer func() { err = errors.Join(err, done()) }()
	p := e.Progress("bytes", 0)
	j.Progress = func(done, total int64) { p.Of(done, total, "backing up") }
	start := time.Now()
	r, err := j.Run(ctx, c)
	p.End()
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted: the target has no new backup; run the same command again")
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "%s: %s backed up to %s as of %s; %s sent in %d parts, in %v\n", store, human.Bytes(r.Bytes), j.Target, r.Time.Format(time.RFC3339), human.Bytes(r.Sent), r.Parts, time.Since(start).Round(10*time.Millisecond))
	if r.Removed > 0 {
		fmt.Fprintf(e.Stdout, "%d older backups removed, which frees %s\n", r.Removed, human.Bytes(r.Freed))
	}
	return nil
}

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
			if list {
				return listBackups(ctx, e, r.target)
			}
			if !app.EngineOf(so.Store).InProcess {
				return restoreElsewhere(e, so.Store, r.target.String())
			}
			if err := so.Check(); err != nil {
				return err
			}
			m, err := backup.Find(ctx, r.target, at, r.trust)
			if err != nil {
				return err
			}
			return restore(ctx, e, r.target, m, so.Store)
		},
	}
}

func listBackups(ctx context.Context, e *command.Environment, t backup.Target) error {
	all, err := backup.List(ctx, t)
	if err != nil {
		return err
	}
	for _, at := range all {
		m, err := backup.Find(ctx, t, at, nil)
		if err != nil {
			fmt.Fprintf(e.Stdout, "%s  cannot be read: %s\n", at.Format(time.RFC3339), human.Line(err.Error()))
			continue
		}
		fmt.Fprintf(e.Stdout, "%s  %s, %s\n", at.Format(time.RFC3339), human.Bytes(m.Bytes()), contents(m))
	}
	if len(all) == 0 {
		return fmt.Errorf("%w in %s", backup.ErrNone, t)
	}
	return nil
}

// contents says what a backup holds.
func contents(m *backup.Manifest) string {
	records := int64(0)
	for _, n := range m.Store.Records {
		records += n
	}
	what := fmt.Sprintf("%s records of %s accounts", human.Count(records), human.Count(m.Store.Accounts))
	if m.Store.Source != "" {
		what += fmt.Sprintf(", %s at seq %d", human.Line(m.Store.Source), m.Store.Cursor)
	}
	if !m.Store.Complete {
		what += ", incomplete"
	}
	return what
}

func restore(ctx context.Context, e *command.Environment, t backup.Target, m *backup.Manifest, dir string) error {
	if err := app.CheckFormat(m); err != nil {
		return err
	}
	p := e.Progress("bytes", m.Bytes())
	start := time.Now()
	err := backup.Restore(ctx, t, backup.RestoreOptions{Dir: dir, Manifest: m, Progress: func(done, total int64) { p.Of(done, total, "restoring") }})
	p.End()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted: %s is not a store yet; run the same command again, which continues", dir)
	}
	if err != nil {
		return err
	}
	took := time.Since(start)
	got, err := app.Summarize(ctx, dir)
	if err != nil {
		return fmt.Errorf("%s is restored, and cannot be opened: %w", dir, err)
	}
	if a, b := fmt.Sprint(got), fmt.Sprint(m.Store); a != b {
		return fmt.Errorf("%s is restored, and does not hold what its manifest says: %s, not %s", dir, a, b)
	}
	fmt.Fprintf(e.Stdout, "%s: restored as of %s (%s in %v): %s\n", dir, m.Time.Format(time.RFC3339), human.Bytes(m.Bytes()), took.Round(10*time.Millisecond), contents(m))
	return nil
}

func verifyCommand(e *command.Environment) *cli.Command {
	var r reading
	return &cli.Command{
		Name: "verify", Usage: "read the backups of a target and compare them with their hashes", ArgsUsage: "TARGET",
		Description: "Reads each part of the backups of TARGET, and restores nothing. " + targetUsage + ", or https://HOST/PATH. The exit code is 1 if a part is missing or damaged.",
		Flags:       []cli.Flag{r.trustFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			from, err := oneTarget(c)
			if err != nil {
				return err
			}
			if err := r.open("", from, true); err != nil {
				return err
			}
			p := e.Progress("bytes", 0)
			v, err := backup.Verify(ctx, r.target, backup.VerifyOptions{
				Trust:    r.trust,
				Problem:  func(err error) { fmt.Fprintln(e.Stdout, human.Line(err.Error())) },
				Progress: func(done, total int64) { p.Of(done, total, "verifying") },
			})
			p.End()
			if ctx.Err() != nil {
				return errors.New("verify: interrupted before everything was read, so there may be more problems")
			}
			if err != nil {
				return err
			}
			if v.Problems > 0 {
				fmt.Fprintf(e.Stderr, "%s: %d problems found\n", r.target, v.Problems)
				return command.ErrQuiet
			}
			fmt.Fprintf(e.Stdout, "%s: no problems found in %d backups, whose %d parts (%s) were read\n", r.target, v.Backups, v.Parts, human.Bytes(v.Bytes))
			return nil
		},
	}
}
