package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer/backfill"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

// past names the records to fetch.
type past struct {
	archive           string
	hosts, dids, cars []string
}

func (p *past) isAll() bool { return p.archive == "" && len(p.hosts)+len(p.dids)+len(p.cars) == 0 }

// check checks the names, and replaces folders of CAR files by their files.
func (p *past) check() (err error) {
	if p.archive != "" && len(p.hosts)+len(p.dids)+len(p.cars) > 0 {
		return command.UsageError("--archive cannot be combined with --host, --did or --car")
	}
	if err := checkDIDs("--did ", p.dids); err != nil {
		return err
	}
	if slices.Contains(p.hosts, "") {
		return command.UsageError("--host is empty; name a PDS, such as pds.example.com")
	}
	p.cars, err = carFiles(p.cars)
	return err
}

func backfillCommand(e *command.Environment) *cli.Command {
	h := &here{network: newNetwork()}
	var a admin
	var p past
	flags := append([]cli.Flag{
		&cli.StringFlag{Name: "archive", Usage: "URL of an archive of the network's history (Jetstream v2); if the archive needs a key, set SKEIN_ARCHIVE_KEY", Destination: &p.archive, Validator: app.CheckArchive, Sources: command.Env("archive")},
		&cli.StringSliceFlag{Name: "host", DefaultText: "every host that the relay lists, unless another source is given", Usage: "PDS from which to fetch all repos; may be repeated", Destination: &p.hosts},
		&cli.StringSliceFlag{Name: "did", Usage: "account whose repo to fetch; may be repeated", Destination: &p.dids},
		&cli.StringSliceFlag{Name: "car", Usage: "exported repo to read: a CAR file, or a folder of *.car files; may be repeated", Destination: &p.cars},
		relayFlag(h.network),
	}, a.flags("admin URL of a running daemon, to which the work is sent; off: do the work in this process, on the store of --store")...)
	flags = append(append(append(flags, verifyFlags(h.network)...), mirrorFlag(h.network)), command.StoreFlags(e, &h.store)...)
	return &cli.Command{
		Name:  "backfill",
		Usage: "add older records from an archive, from hosts, or from individual repos or files; a running daemon does the work, if there is one",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			if err := a.read(c); err != nil {
				return err
			}
			if err := p.check(); err != nil { // before a store is created
				return err
			}
			var w worker = &a
			if a.address == noAdmin || c.IsSet("store") && !a.named {
				w, h.store.Create = h, true
			} else if _, err := a.status(ctx); err != nil {
				if a.named || !errors.Is(err, syscall.ECONNREFUSED) {
					return err
				}
				w = h // on a store that exists: --store is only the default
				fmt.Fprintf(e.Stderr, "no daemon answers at %s; working in this process, on the store %s\n", a.address, h.store.Store)
			}
			if w == worker(h) {
				if err := h.open(ctx, e, &p); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, h.close(ctx)) }()
			}
			return runBackfill(ctx, e, w, &p)
		},
	}
}

// checkDIDs returns a usage error for malformed DIDs, which no directory could resolve.
func checkDIDs(flag string, dids []string) error {
	for _, did := range dids {
		if err := app.CheckDID(did); err != nil {
			return command.UsageError("%s%q %v", flag, did, err)
		}
	}
	return nil
}

func runBackfill(ctx context.Context, e *command.Environment, w worker, p *past) error {
	before, err := w.status(ctx)
	if err != nil {
		return err
	}
	failed, err := placeFiles(ctx, e, w, p.cars)
	if err != nil {
		return err
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
			fmt.Fprintln(e.Stderr, say.Line(said))
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
			fmt.Fprintln(e.Stderr, say.Line(fmt.Sprintf("%s: %v", name, err)))
			continue
		}
		fmt.Fprintln(e.Stdout, say.Line(fmt.Sprintf("%s: %s at %s: %s, %d records", name, placed.DID, placed.Rev, placed.Outcome, placed.Records)))
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
			fmt.Fprintln(e.Stderr, say.Line(st.Trouble))
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
	parts := []string{fmt.Sprintf("%s of %s repos complete", say.Count(st.Complete), say.Count(st.Accounts))}
	if st.Archive != "" && st.ArchiveTip > 0 {
		parts = append(parts, fmt.Sprintf("archive %.1f%%", 100*float64(st.ArchiveSeq)/float64(st.ArchiveTip)))
	}
	if st.Hosts > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d hosts listed", st.HostsDone, st.Hosts))
	}
	if repos := st.Fetched - before.Fetched; repos > 0 {
		parts = append(parts, say.Count(repos)+" fetched")
	}
	parts = append(parts, fmt.Sprintf("%s records, %s, %s/s", say.Count(records), say.Bytes(st.Bytes-before.Bytes), say.Count(int64(float64(records)/max(took.Seconds(), 0.1)))))
	if st.Waiting > 0 {
		parts = append(parts, say.Count(st.Waiting)+" waiting")
	}
	for _, why := range slices.Sorted(maps.Keys(st.Failed)) {
		parts = append(parts, fmt.Sprintf("%s given up: %s", say.Count(st.Failed[why]), why))
	}
	if st.Trouble != "" {
		parts = append(parts, st.Trouble)
	}
	if left, ok := timeLeft(st, took); ok {
		parts = append(parts, left.Round(time.Second).String()+" left")
	}
	return say.Line(strings.Join(parts, ", "))
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
