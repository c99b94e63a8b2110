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

// past names the records to fetch.
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
		&cli.StringFlag{Name: "archive", Usage: "URL of an archive of the network's history (Jetstream v2); if the archive needs a key, set SKEIN_ARCHIVE_KEY", Destination: &p.archive, Sources: command.Env("archive")},
		&cli.StringSliceFlag{Name: "host", DefaultText: "every host that the relay lists, unless another source is given", Usage: "PDS from which to fetch all repos; may be repeated"},
		&cli.StringSliceFlag{Name: "did", Usage: "account whose repo to fetch; may be repeated"},
		&cli.StringSliceFlag{Name: "car", Usage: "exported repo to read: a CAR file, or a folder of *.car files; may be repeated"},
		&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "admin URL of a running daemon, to which the work is sent; off: do the work in this process, on the store of --store", Destination: &admin, Sources: adminEnv()},
		s.RelayFlag(),
	}, s.SentAdminTokenFlags()...), append(append(s.VerifyFlags(), s.PastFlags()...), s.WriteFlags(e)...)...)
	return &cli.Command{
		Name:  "backfill",
		Usage: "add older records from an archive, from hosts, or from individual repos or files; a running daemon does the work, if there is one",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			p.hosts, p.dids, p.files = c.StringSlice("host"), c.StringSlice("did"), c.StringSlice("car")
			if p.archive != "" && len(p.hosts)+len(p.dids)+len(p.files) > 0 {
				return command.UsageError("--archive cannot be combined with --host, --did or --car")
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
				return command.UsageError("--host is empty; name a PDS, such as pds.example.com")
			}
			if p.files, err = carFiles(p.files); err != nil { // before a store is created for them
				return err
			}
			// The listen address of a daemon with the same environment is only a guess.
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
		Name: "resync", Usage: "make a running daemon refetch repos", ArgsUsage: "DID…",
		Flags: append([]cli.Flag{&cli.BoolFlag{Name: "trust-host", Usage: "accept the host's copy even if it is older than commits already seen in the stream, for example after the host was restored from a backup", Destination: &trust}, &cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "admin URL of the daemon", Destination: &admin, Sources: adminEnv()}}, s.SentAdminTokenFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			dids := c.Args().Slice()
			if len(dids) == 0 {
				return command.UsageError("skein resync needs the DIDs of the repos")
			}
			if err := checkDIDs("", dids); err != nil {
				return err
			}
			token, err := s.AdminToken()
			if err != nil {
				return err
			}
			var st backfill.Status // decoding it proves that a skein answered
			if err := (adminOf{admin, token}).post(ctx, "/resync", "application/json", asJSON(map[string]any{"dids": dids, "trustHost": trust}), &st); err != nil {
				return err
			}
			fmt.Fprintf(e.Stdout, "%d queued\n", len(dids))
			return nil
		},
	}
}

// adminEnv returns the variables for the admin address of a daemon: the one of these commands,
// and the daemon's own.
func adminEnv() cli.ValueSourceChain {
	return cli.EnvVars(command.EnvPrefix+"ADMIN", command.EnvPrefix+"ADMIN_LISTEN")
}

// checkDIDs returns a usage error for malformed DIDs, which no directory could resolve.
func checkDIDs(flag string, dids []string) error {
	for _, did := range dids {
		if !syntax.ValidDID(did) {
			return command.UsageError("%s%q is not a DID", flag, did)
		}
		if plc, ok := strings.CutPrefix(did, "did:plc:"); ok && !syntax.ValidPLC(plc) {
			return command.UsageError("%s%q is not a valid did:plc: it needs 24 base32 characters (a-z, 2-7) after did:plc:", flag, did)
		}
	}
	return nil
}

func asJSON(v any) io.Reader {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // v holds maps and strings only
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
			create = false // --store is only the default
			fmt.Fprintf(e.Stderr, "no daemon answers at %s; working in this process, on the store %s\n", admin, s.Store)
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
		return fmt.Errorf("%d files could not be read", failed)
	}
	return nil
}

// begin starts the work, and prints what the start waits for.
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

// carFiles lists the named files, and the *.car files of the named folders.
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
			return nil, fmt.Errorf("--car %s: no *.car files in this folder", name)
		}
	}
	return all, nil
}

// placeFiles indexes files, one by one. It prints the error of a file that fails, and goes on
// with the rest.
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

// follow shows the progress of the work until it ends: a changing line on a terminal, else a
// line every minute.
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
			return errors.New("interrupted; fetched repos are kept. Run the same command again to resume")
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
		return true, fmt.Errorf("%d repos have not been fetched yet; skein serve will retry them. For the reasons, see /resyncs on its admin listener", st.Waiting)
	}
	return true, nil
}

func backfillLine(st, before *backfill.Status, took time.Duration) string {
	records := st.Records - before.Records
	parts := []string{fmt.Sprintf("%s of %s repos complete", human.Count(st.Complete), human.Count(st.Accounts))}
	if st.Archive != "" && st.ArchiveTip > 0 {
		parts = append(parts, fmt.Sprintf("archive %.1f%%", 100*float64(st.ArchiveSeq)/float64(st.ArchiveTip)))
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

// soFar returns the progress through an archive, or through the listed repos; all is 0 while
// the total is unknown.
func soFar(st *backfill.Status) (done, all int64) {
	switch {
	case st.Archive != "":
		return st.ArchiveSeq, st.ArchiveTip
	case st.HostsDone < st.Hosts:
		return st.Fetched, 0
	}
	return st.Fetched, st.Fetched + st.Waiting
}

// timeLeft estimates the time left from the progress so far.
func timeLeft(st *backfill.Status, took time.Duration) (time.Duration, bool) {
	done, all := soFar(st)
	if done <= 0 || all <= done {
		return 0, false
	}
	return time.Duration(float64(took) * float64(all-done) / float64(done)), true
}
