package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/query/algebra"
)

const targetUsage = "TARGET is a folder or s3://BUCKET/PREFIX (with the usual variables AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"

func backupCommand(e *command.Environment) *cli.Command {
	s, b := &command.Settings{}, &command.BackupSettings{}
	var admin string
	flags := append([]cli.Flag{
		s.StoreFlag(),
		&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "admin URL of the running daemon on this machine whose store to back up; off: open the store of --store directly, which no daemon may have open", Destination: &admin, Sources: adminEnv()},
	}, append(s.SentAdminTokenFlags(), b.MakeFlags()...)...)
	return &cli.Command{
		Name: "backup", Usage: "back up a store, which may be in use, to a folder or bucket", ArgsUsage: "TARGET",
		Description: "Sends what the target lacks. The daemon goes on indexing and answering. " + targetUsage + ".",
		Flags:       flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			to, err := oneTarget(c)
			if err != nil {
				return err
			}
			j, err := b.Job("", to)
			if err != nil {
				return err
			}
			hasAdmin := c.IsSet("admin") && admin != os.Getenv(command.EnvPrefix+"ADMIN_LISTEN")
			return backUp(ctx, e, s, &j, admin, hasAdmin, c.IsSet("store"))
		},
	}
}

// oneTarget returns the only argument of a command.
func oneTarget(c *cli.Command) (string, error) {
	if c.Args().Len() != 1 {
		return "", command.UsageError("skein %s needs one argument, the target: %s", c.Name, targetUsage)
	}
	return c.Args().First(), nil
}

// noCheckpoint is the app.ErrNoCheckpoint of a store.
type noCheckpoint struct{ store string }

// Error implements error.
func (n *noCheckpoint) Error() string { return fmt.Sprintf("%s: %v", n.store, app.ErrNoCheckpoint) }

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
func backUp(ctx context.Context, e *command.Environment, s *command.Settings, j *app.BackupJob, admin string, hasAdmin, hasStore bool) (err error) {
	c, done, err := checkpoint(ctx, e, s, admin, hasAdmin, hasStore)
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

// checkpoint makes a checkpoint, and returns what removes it: of the store of a running daemon, or of
// --store if the daemon has another, or if none answers at the default address.
func checkpoint(ctx context.Context, e *command.Environment, s *command.Settings, admin string, hasAdmin, hasStore bool) (c app.Checkpoint, done func() error, err error) {
	if err := command.CheckStoreFlag(s.Store); err != nil {
		return c, nil, err
	}
	if !app.EngineOf(s.Store).InProcess {
		return c, nil, &noCheckpoint{s.Store}
	}
	if admin != noAdmin {
		c, done, err = lend(ctx, s, admin)
		switch {
		case err == nil && (hasAdmin || !hasStore || sameFolder(s.Store, storeOf(c))):
			return c, done, nil
		case err == nil:
			err = done()
			fmt.Fprintf(e.Stderr, "the daemon at %s has another store (%s); using %s\n", admin, storeOf(c), s.Store)
		case hasAdmin || !hasStore && !errors.Is(err, syscall.ECONNREFUSED):
			return c, nil, err
		default:
			fmt.Fprintf(e.Stderr, "no daemon at %s lends a copy of its store (%v); using the store %s\n", admin, err, s.Store)
		}
	}
	lost := err
	c, err = app.CheckpointClosed(ctx, app.StoreOptions{Store: s.Store, Memory: 64 << 20})
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return c, nil, command.UsageError("there is no store in %s; name one with --store, or a daemon with --admin", s.Store)
	case errors.Is(err, kv.ErrLocked):
		return c, nil, errors.Join(fmt.Errorf("%w; name the daemon that has it with --admin", err), lost)
	case err != nil:
		return c, nil, err
	}
	return c, c.Remove, nil
}

// storeOf returns the folder of the store that a checkpoint is of.
func storeOf(c app.Checkpoint) string { return filepath.Dir(filepath.Dir(c.Folder)) }

func sameFolder(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return errors.Join(err1, err2) == nil && os.SameFile(x, y)
}

// lend asks a daemon for a checkpoint. The daemon removes it when done is called, or this process is
// gone.
func lend(ctx context.Context, s *command.Settings, admin string) (c app.Checkpoint, done func() error, err error) {
	token, err := s.AdminToken()
	if err != nil {
		return c, nil, err
	}
	resp, err := (adminOf{admin, token}).send(ctx, http.MethodPost, "/checkpoint", "application/json", asJSON(map[string]any{}))
	if no, ok := errors.AsType[*refusal](err); ok && no.store != "" {
		return c, nil, &noCheckpoint{no.store}
	} else if err != nil {
		return c, nil, err
	}
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || c.Folder == "" {
		return c, nil, errors.Join(fmt.Errorf("%s did not answer as skein does; is --admin the admin address of skein serve? %w", admin, err), resp.Body.Close())
	}
	if _, err := os.Stat(c.Folder); err != nil {
		return c, nil, errors.Join(fmt.Errorf("the daemon's store, %s, cannot be read here; run skein backup on the daemon's machine, or in its container, as a user who may read the store: %w", storeOf(c), err), resp.Body.Close())
	}
	return c, resp.Body.Close, nil
}

func restoreCommand(e *command.Environment) *cli.Command {
	s, b := &command.Settings{}, &command.BackupSettings{}
	var at string
	var list bool
	return &cli.Command{
		Name: "restore", Usage: "restore a store from a backup", ArgsUsage: "TARGET",
		Description: "Writes the newest backup of TARGET to the folder of --store, which must not exist or be empty. If it is interrupted, the same command continues. " + targetUsage + ", or https://HOST/PATH.",
		Flags: []cli.Flag{
			s.StoreFlag(),
			&cli.StringFlag{Name: "at", DefaultText: "the newest backup", Usage: "restore the newest backup made at this time or before: 2026-11-25T12:00:00Z, 2026-11-25, or an age such as 24h", Destination: &at},
			&cli.BoolFlag{Name: "list", Usage: "print the backups of TARGET, and restore nothing", Destination: &list},
			b.TrustFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			from, err := oneTarget(c)
			if err != nil {
				return err
			}
			t, err := command.OpenTarget("", from)
			if err != nil {
				return err
			}
			if list {
				return listBackups(ctx, e, t)
			}
			var when time.Time
			if at != "" {
				if when, _, err = algebra.ParseTime(at, time.Now()); err != nil {
					return command.UsageError("--at: %v", err)
				}
			}
			trust, err := b.Trust(from)
			if err != nil {
				return err
			}
			if !app.EngineOf(s.Store).InProcess {
				return restoreElsewhere(e, s.Store, t.String())
			}
			if err := command.CheckStoreFlag(s.Store); err != nil {
				return err
			}
			m, err := backup.Find(ctx, t, when, trust)
			if err != nil {
				return err
			}
			return restore(ctx, e, t, m, s.Store)
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
	b := &command.BackupSettings{}
	return &cli.Command{
		Name: "verify", Usage: "read the backups of a target and compare them with their hashes", ArgsUsage: "TARGET",
		Description: "Reads each part of the backups of TARGET, and restores nothing. " + targetUsage + ", or https://HOST/PATH. The exit code is 1 if a part is missing or damaged.",
		Flags: []cli.Flag{
			b.TrustFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			from, err := oneTarget(c)
			if err != nil {
				return err
			}
			t, err := command.OpenTarget("", from)
			if err != nil {
				return err
			}
			trust, err := b.Trust(from)
			if err != nil {
				return err
			}
			p := e.Progress("bytes", 0)
			v, err := backup.Verify(ctx, t, backup.VerifyOptions{
				Trust:    trust,
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
				fmt.Fprintf(e.Stderr, "%s: %d problems found\n", t, v.Problems)
				return command.ErrQuiet
			}
			fmt.Fprintf(e.Stdout, "%s: no problems found in %d backups, whose %d parts (%s) were read\n", t, v.Backups, v.Parts, human.Bytes(v.Bytes))
			return nil
		},
	}
}
