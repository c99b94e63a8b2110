package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/backfill"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
)

// past names the records to fetch.
type past struct {
	Archive string   `json:"archive"`
	Hosts   []string `json:"hosts"`
	Repos   bool     `json:"repos"` // of every host that the relay lists

	dids, cars []string
}

func backfillCommand(e *command.Environment) *cli.Command {
	var a admin
	var p past
	flags := append([]cli.Flag{
		&cli.StringFlag{Name: "archive", Usage: "URL of an archive of the network's history (Jetstream v2); if it needs a key, set SKEIN_ARCHIVE_KEY where the daemon runs", Destination: &p.Archive, Validator: func(s string) error { _, err := archive.Source(s); return err }, Sources: command.Env("archive")},
		&cli.StringSliceFlag{Name: "host", DefaultText: "every host that the relay lists, unless another source is given", Usage: "PDS from which to fetch all repos; may be repeated", Destination: &p.Hosts},
		&cli.StringSliceFlag{Name: "did", Usage: "account whose repo to fetch, by its DID or @handle; may be repeated", Destination: &p.dids},
		&cli.StringSliceFlag{Name: "car", Usage: "exported repo to read: a CAR file, or a folder of *.car files; may be repeated", Destination: &p.cars},
	}, a.flags("admin URL of the daemon that does the work")...)
	return &cli.Command{
		Name:  "backfill",
		Usage: "add older records from an archive, from hosts, or from single repos or files: makes a running daemon do the work",
		Flags: flags,
		Action: func(ctx context.Context, _ *cli.Command) error {
			err := p.check()
			if err == nil {
				err = a.read()
			}
			if err != nil {
				return err
			}
			return a.backfill(ctx, e, &p)
		},
	}
}

// check checks the names, and replaces folders of CAR files by their files.
func (p *past) check() (err error) {
	switch {
	case p.Archive != "" && len(p.Hosts)+len(p.dids)+len(p.cars) > 0:
		return command.UsageError("--archive cannot be combined with --host, --did or --car")
	case slices.Contains(p.Hosts, ""):
		return command.UsageError("--host is empty; name a PDS, such as pds.example.com")
	}
	p.Repos = p.Archive == "" && len(p.Hosts)+len(p.dids)+len(p.cars) == 0
	if err := checkDIDs("--did ", p.dids); err != nil {
		return err
	}
	p.cars, err = carFiles(p.cars)
	return err
}

// checkDIDs returns a usage error for malformed DIDs, which no directory could resolve. The daemon resolves handles.
func checkDIDs(flag string, dids []string) error {
	for _, did := range dids {
		if err := app.CheckDID(did); err != nil && !strings.HasPrefix(did, "@") {
			return command.UsageError("%s%q %v", flag, did, err)
		}
	}
	return nil
}

// carFiles lists the named files, and the *.car files of the named folders.
func carFiles(names []string) (all []string, err error) {
	for _, name := range names {
		before := len(all)
		err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (path == name || strings.HasSuffix(path, ".car")) {
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

// backfill sends the files, one by one, then begins the rest and shows its progress. It prints the error of a file
// that fails, and goes on.
func (a *admin) backfill(ctx context.Context, e *command.Environment, p *past) error {
	failed := 0
	for _, name := range p.cars {
		placed, err := a.car(ctx, name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			fmt.Fprintln(e.Stderr, say.Line(fmt.Sprintf("%s: %v", name, err)))
		default:
			fmt.Fprintln(e.Stdout, say.Line(fmt.Sprintf("%s: %s at %s: %s, %d records", name, placed.DID, placed.Rev, placed.Outcome, placed.Records)))
		}
	}
	if p.Repos || p.Archive != "" || len(p.Hosts)+len(p.dids) > 0 {
		if err := a.begin(ctx, p); err != nil {
			return err
		}
		if err := a.follow(ctx, e, p); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d files could not be read", failed)
	}
	return nil
}

// begin makes the daemon begin to fetch what is named.
func (a *admin) begin(ctx context.Context, p *past) error {
	if len(p.dids) > 0 {
		answer := struct{ DIDs *[]string }{&p.dids} // instead of handles
		if err := a.post(ctx, "/resync", map[string]any{"dids": p.dids}, &answer); err != nil || len(p.Hosts) == 0 {
			return err
		}
	}
	return a.post(ctx, "/backfill", p, new(backfill.Status)) // decoding it proves that a skein answered
}

// car sends a file to the daemon.
func (a *admin) car(ctx context.Context, name string) (p backfill.Placed, err error) {
	f, err := os.Open(name)
	if err != nil {
		return p, err
	}
	defer func() { _ = f.Close() }() // it was only read
	err = a.ask(ctx, http.MethodPost, "/car", f, &p)
	return p, err
}

// follow shows the progress of the work until it ends: a changing line on a terminal, else a
// line every minute.
func (a *admin) follow(ctx context.Context, e *command.Environment, p *past) error {
	const every = 500 * time.Millisecond
	said := time.Time{}
	bar := e.Progress("")
	defer bar.End()
	for {
		var st backfill.Status
		err := a.ask(ctx, http.MethodGet, "/backfill", nil, &st)
		if ctx.Err() != nil {
			return errors.New("interrupted; the daemon goes on: see /backfill on its admin listener")
		} else if err != nil {
			return err
		}
		line, how := backfillLine(&st), ""
		done, all := st.Fetched, int64(0)
		if p.Repos || len(p.Hosts) > 0 { // else it is of another job
			how = st.Ended["repos"]
		}
		switch {
		case p.Archive != "":
			how, done, all = st.Ended["archive"], st.ArchiveSeq, st.ArchiveTip
		case st.HostsDone >= st.Hosts:
			all = st.Fetched + st.Waiting
		}
		switch {
		case !st.Busy && how != "" && how != "ok":
			return errors.New(how)
		case !st.Busy:
			bar.End()
			if len(p.dids) > 0 {
				err = a.inPlace(ctx, p.dids)
			}
			if err == nil {
				fmt.Fprintf(e.Stdout, "done: %s\n", line)
			}
			return err
		case e.Terminal():
			bar.Of(done, all, line)
		case time.Since(said) >= time.Minute:
			said = time.Now()
			fmt.Fprintln(e.Stderr, line)
		}
		_ = outward.Wait(ctx, every) // the status is asked for once more when ctx has ended
	}
}

// inPlace returns an error unless the repos of some accounts are in place.
func (a *admin) inPlace(ctx context.Context, dids []string) error {
	resp, err := a.send(ctx, http.MethodGet, "/resyncs", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return outward.AnswerOf(resp)
	}
	missing, rows := 0, bufio.NewScanner(resp.Body)
	for rows.Scan() {
		var row struct{ DID string }
		if err := json.Unmarshal(rows.Bytes(), &row); err != nil || slices.Contains(dids, row.DID) {
			missing++
		}
	}
	if err = rows.Err(); err == nil && missing > 0 {
		err = fmt.Errorf("%d of %d repos are not in place; skein serve retries those that wait. For the reasons, see /resyncs on its admin listener", missing, len(dids))
	}
	return err
}

func backfillLine(st *backfill.Status) string {
	parts := []string{fmt.Sprintf("%s of %s repos complete", say.Count(st.Complete), say.Count(st.Accounts))}
	if st.ArchiveTip > 0 {
		parts = append(parts, fmt.Sprintf("archive %.1f%%", 100*float64(st.ArchiveSeq)/float64(st.ArchiveTip)))
	}
	if st.Hosts > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d hosts listed", st.HostsDone, st.Hosts))
	}
	parts = append(parts, fmt.Sprintf("%s repos fetched with %s records, %s", say.Count(st.Fetched), say.Count(st.Records), say.Bytes(st.Bytes)))
	if st.Waiting > 0 {
		parts = append(parts, say.Count(st.Waiting)+" waiting")
	}
	for _, why := range slices.Sorted(maps.Keys(st.Failed)) {
		parts = append(parts, fmt.Sprintf("%s given up: %s", say.Count(st.Failed[why]), why))
	}
	if st.Trouble != "" {
		parts = append(parts, st.Trouble)
	}
	return say.Line(strings.Join(parts, ", "))
}
