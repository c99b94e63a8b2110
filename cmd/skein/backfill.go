package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/backfill"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/syntax"
)

// past is what is to be fetched.
type past struct {
	archive string
	hosts   []string
	dids    []string
	files   []string
}

func (p *past) isAll() bool { return p.archive == "" && len(p.hosts)+len(p.dids)+len(p.files) == 0 }

const noAdmin = "off"

func backfillCommand(e *command.Environment) *cli.Command {
	s := &command.Settings{}
	var admin string
	var p past
	flags := append(append([]cli.Flag{
		&cli.StringFlag{Name: "archive", Usage: "the address of a Jetstream v2 archive; its key, if it wants one, is read from SKEIN_ARCHIVE_KEY", Destination: &p.archive, Sources: command.Env("archive")},
		&cli.StringSliceFlag{Name: "host", DefaultText: "all hosts of the relay", Usage: "fetch all repos of this PDS; several times for several"},
		&cli.StringSliceFlag{Name: "did", Usage: "fetch the repo of this account"},
		&cli.StringSliceFlag{Name: "car", Usage: "take this file, or all *.car in this folder: repos that were exported"},
		&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "the admin address of a running daemon, which does the work; off: do it here, in the store of --store", Destination: &admin, Sources: adminEnv()},
		s.RelayFlag(),
	}, s.AdminTokenFlags()...), append(s.PastFlags(), s.WriteFlags(e)...)...)
	return &cli.Command{
		Name:  "backfill",
		Usage: "fetch the past: from an archive, from hosts, of single repos, or from files; through a running daemon, if there is one",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			p.hosts, p.dids, p.files = c.StringSlice("host"), c.StringSlice("did"), c.StringSlice("car")
			if p.archive != "" && len(p.hosts)+len(p.dids)+len(p.files) > 0 {
				return command.UsageError("--archive goes without --host, --did and --car")
			}
			if p.archive != "" {
				if _, err := archive.Source(p.archive); err != nil {
					return command.UsageError("--archive: %v", err)
				}
			}
			if err := checkDIDs("--did ", p.dids); err != nil {
				return err
			}
			if slices.Contains(p.hosts, "") {
				return command.UsageError("--host is empty: name a PDS, such as pds.example.com")
			}
			if p.files, err = carFiles(p.files); err != nil { // before anything is made for them
				return err
			}
			// Where a daemon of the same environment listens is only a guess.
			hasAdmin := c.IsSet("admin") && admin != os.Getenv(command.EnvPrefix+"ADMIN_LISTEN")
			return runBackfill(ctx, e, s, &p, admin, hasAdmin, c.IsSet("store"))
		},
	}
}

func resyncCommand(e *command.Environment) *cli.Command {
	s := &command.Settings{}
	var admin string
	var trust bool
	return &cli.Command{
		Name: "resync", Usage: "have a running daemon fetch repos again", ArgsUsage: "DID…",
		Flags: append([]cli.Flag{&cli.BoolFlag{Name: "trust-host", Usage: "take what the host sends although the stream has told of newer commits: the host was restored from a backup, say", Destination: &trust}, &cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "the admin address of the daemon", Destination: &admin, Sources: adminEnv()}}, s.AdminTokenFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			dids := c.Args().Slice()
			if len(dids) == 0 {
				return command.UsageError("skein resync takes the DIDs of the repos")
			}
			if err := checkDIDs("", dids); err != nil {
				return err
			}
			token, err := s.AdminToken()
			if err != nil {
				return err
			}
			var said backfill.Status // it is skein's
			if err := (adminOf{admin, token}).post(ctx, "/resync", "application/json", asJSON(map[string]any{"dids": dids, "trustHost": trust}), &said); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%d queued\n", len(dids))
			return nil
		},
	}
}

// adminEnv is where the admin address of a daemon may be said: for these commands, or as for
// the daemon itself.
func adminEnv() cli.ValueSourceChain {
	return cli.EnvVars(command.EnvPrefix+"ADMIN", command.EnvPrefix+"ADMIN_LISTEN")
}

// checkDIDs refuses what is no DID: nobody would answer for it.
func checkDIDs(flag string, dids []string) error {
	for _, did := range dids {
		if !syntax.ValidDID(did) {
			return command.UsageError("%s%q is not a DID", flag, did)
		}
		if plc, ok := strings.CutPrefix(did, "did:plc:"); ok && !syntax.ValidPLC(plc) {
			return command.UsageError("%s%q is not a did:plc, which has 24 characters of base32", flag, did)
		}
	}
	return nil
}

func asJSON(v any) io.Reader {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of maps and strings
	}
	return bytes.NewReader(b)
}

func runBackfill(ctx context.Context, e *command.Environment, s *command.Settings, p *past, admin string, hasAdmin, hasStore bool) (err error) {
	var w worker
	create := true
	if admin != noAdmin && (hasAdmin || !hasStore) {
		token, err := s.AdminToken()
		if err != nil {
			return err
		}
		d := adminOf{admin, token}
		_, err = d.status(ctx)
		switch {
		case err == nil:
			w = d
		case hasAdmin || !errors.Is(err, syscall.ECONNREFUSED):
			return err
		default:
			create = false // nobody said where
			fmt.Fprintf(e.Stderr, "no daemon answers at %s: the work is done here, in the store %s\n", admin, s.Store)
		}
	}
	if w == nil {
		h, err := openHere(ctx, e, s, p, create)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, h.close(ctx)) }()
		w = h
	}
	before, err := w.status(ctx)
	if err != nil {
		return err
	}
	failed := 0
	if len(p.files) > 0 {
		if failed, err = placeFiles(ctx, e, w, p.files); err != nil {
			return err
		}
	}
	if p.isAll() || p.archive != "" || len(p.hosts)+len(p.dids) > 0 {
		if err := begin(ctx, e, w, p); err != nil {
			return err
		}
		if err := follow(ctx, e, w, p, &before); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d files could not be taken", failed)
	}
	return nil
}

// begin begins, and says what that waits for.
func begin(ctx context.Context, e *command.Environment, w worker, p *past) error {
	begun := make(chan error, 1)
	go func() { begun <- w.begin(ctx, p) }()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	said := ""
	for {
		select {
		case err := <-begun:
			return err
		case <-tick.C:
		}
		if st, err := w.status(ctx); err == nil && st.Trouble != "" && st.Trouble != said {
			said = st.Trouble
			fmt.Fprintln(e.Stderr, human.Line(said))
		}
	}
}

// carFiles lists files, and those of folders.
func carFiles(names []string) (all []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("--car: %w", err)
		}
		if !info.IsDir() {
			all = append(all, name)
			continue
		}
		before := len(all)
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".car") {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("--car: %w", err)
		}
		if len(all) == before {
			return nil, fmt.Errorf("--car %s: there is no file *.car in this folder", name)
		}
	}
	return all, nil
}

// placeFiles takes files, one after the other. One that cannot be taken is named, and the
// rest goes on.
func placeFiles(ctx context.Context, e *command.Environment, w worker, all []string) (failed int, err error) {
	for _, name := range all {
		placed, err := placeFile(ctx, w, name)
		if ctx.Err() != nil {
			return failed, ctx.Err()
		}
		if err != nil {
			failed++
			fmt.Fprintln(e.Stderr, human.Line(fmt.Sprintf("%s: %v", name, err)))
			continue
		}
		fmt.Fprintln(e.Stdout, human.Line(fmt.Sprintf("%s: %s at %s: %s, %d records", name, placed.DID, placed.Rev, placed.Outcome, placed.Records)))
	}
	return failed, nil
}

func placeFile(ctx context.Context, w worker, name string) (backfill.Placed, error) {
	f, err := os.Open(name)
	if err != nil {
		return backfill.Placed{}, fmt.Errorf("--car: %w", err)
	}
	defer func() { _ = f.Close() }()
	return w.car(ctx, bufio.NewReaderSize(f, 1<<20))
}

// follow shows how far the work is, until it has ended: a line that changes on a
// terminal, else one every minute.
func follow(ctx context.Context, e *command.Environment, w worker, p *past, before *backfill.Status) error {
	const every = 500 * time.Millisecond
	var last time.Time
	trouble := ""
	began := time.Now()
	bar := e.Progress("", 0)
	defer bar.End()
	for {
		st, err := w.status(ctx)
		if err != nil {
			return err
		}
		line := backfillLine(&st, before, time.Since(began))
		if st.Trouble != "" && st.Trouble != trouble && !e.Terminal() {
			fmt.Fprintln(e.Stderr, human.Line(st.Trouble))
		}
		trouble = st.Trouble
		done, all := soFar(&st)
		switch {
		case e.Terminal():
			bar.Of(done, all, line)
		case time.Since(last) >= time.Minute || !st.Busy:
			last = time.Now()
			fmt.Fprintln(e.Stderr, line)
		}
		if ended, err := hasEnded(&st, p); ended {
			bar.End()
			if err == nil {
				fmt.Fprintf(e.Stdout, "done: %s\n", line)
			}
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return errors.New("interrupted; what was fetched is kept, and the same command goes on from there")
		}
	}
}

func hasEnded(st *backfill.Status, p *past) (ended bool, err error) {
	if st.Busy {
		return false, nil
	}
	name := "repos"
	if p.archive != "" {
		name = "archive"
	}
	if how := st.Ended[name]; how != "" && how != "ok" {
		return true, errors.New(how)
	}
	if len(p.dids) > 0 && st.Waiting > 0 {
		return true, fmt.Errorf("%d repos could not be fetched yet; a daemon tries them again (skein serve), and its /resyncs says why", st.Waiting)
	}
	return true, nil
}

func backfillLine(st, before *backfill.Status, took time.Duration) string {
	records := st.Records - before.Records
	parts := []string{fmt.Sprintf("%s of %s repos complete", human.Count(st.Complete), human.Count(st.Accounts))}
	if st.Archive != "" && st.ArchiveTip > 0 {
		parts = append(parts, fmt.Sprintf("archive %.1f %%", 100*float64(st.ArchiveSeq)/float64(st.ArchiveTip)))
	}
	if st.Hosts > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d hosts listed", st.HostsDone, st.Hosts))
	}
	if repos := st.Fetched - before.Fetched; repos > 0 {
		parts = append(parts, human.Count(repos)+" fetched")
	}
	parts = append(parts, fmt.Sprintf("%s records, %s, %s/s", human.Count(records), human.Bytes(st.Bytes-before.Bytes), human.Count(int64(float64(records)/max(took.Seconds(), 0.1)))))
	if st.Waiting > 0 {
		parts = append(parts, human.Count(st.Waiting)+" waiting")
	}
	for _, why := range slices.Sorted(maps.Keys(st.Failed)) {
		parts = append(parts, fmt.Sprintf("%s given up: %s", human.Count(st.Failed[why]), why))
	}
	if st.Trouble != "" {
		parts = append(parts, st.Trouble)
	}
	if left, ok := timeLeft(st, took); ok {
		parts = append(parts, left.Round(time.Second).String()+" left")
	}
	return human.Line(strings.Join(parts, ", "))
}

// soFar returns how far an archive, or the repos listed, have got, and of how many; all is 0
// if that is not known yet.
func soFar(st *backfill.Status) (done, all int64) {
	switch {
	case st.Archive != "":
		return st.ArchiveSeq, st.ArchiveTip
	case st.HostsDone < st.Hosts:
		return st.Fetched, 0
	}
	return st.Fetched, st.Fetched + st.Waiting
}

// timeLeft is a guess, by how far an archive, or the repos listed, have got.
func timeLeft(st *backfill.Status, took time.Duration) (time.Duration, bool) {
	done, all := soFar(st)
	if done <= 0 || all <= done {
		return 0, false
	}
	return time.Duration(float64(took) * float64(all-done) / float64(done)), true
}
