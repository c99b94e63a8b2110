package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer/backfill"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
)

// past names the records to fetch.
type past struct {
	Archive string   `json:"archive"`
	Hosts   []string `json:"hosts"`
	Repos   bool     `json:"repos"` // of every host that the relay lists
}

func backfillCommand(e *command.Environment) *cli.Command {
	var a admin
	var p past
	return &cli.Command{
		Name:  "backfill",
		Usage: "make a running daemon add older records, from an archive or from hosts; for single repos, see resync",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "archive", Usage: "URL of an archive of the network's history (Jetstream v2); if it needs a key, set SKEIN_ARCHIVE_KEY for the daemon", Destination: &p.Archive, Validator: app.CheckArchive, Sources: command.Env("archive")},
			&cli.StringSliceFlag{Name: "host", DefaultText: "every host that the relay lists, unless there is --archive", Usage: "PDS from which to fetch all repos; may be repeated", Destination: &p.Hosts},
		}, a.flags("admin URL of the daemon")...),
		Action: func(ctx context.Context, c *cli.Command) (err error) {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			switch {
			case p.Archive != "" && len(p.Hosts) > 0:
				return command.UsageError("--archive cannot be combined with --host")
			case slices.Contains(p.Hosts, ""):
				return command.UsageError("--host is empty; name a PDS, such as pds.example.com")
			}
			if err := a.read(); err != nil {
				return err
			}
			p.Repos = p.Archive == "" && len(p.Hosts) == 0
			var st backfill.Status // decoding it proves that a skein answered
			if err := a.post(ctx, "/backfill", p, &st); err != nil {
				return err
			}
			return follow(ctx, e, &a, &p)
		},
	}
}

// follow shows the progress of the work until it ends: a changing line on a terminal, else a
// line every minute.
func follow(ctx context.Context, e *command.Environment, a *admin, p *past) error {
	const every = 500 * time.Millisecond
	said := time.Time{}
	bar := e.Progress("", 0)
	defer bar.End()
	for {
		var st backfill.Status
		if err := a.ask(ctx, http.MethodGet, "/backfill", nil, &st); ctx.Err() != nil {
			return errors.New("interrupted; the daemon goes on, and /backfill on its admin listener shows the progress")
		} else if err != nil {
			return err
		}
		line, how := backfillLine(&st), st.Ended["repos"]
		done, all := st.Fetched, int64(0)
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
			fmt.Fprintf(e.Stdout, "done: %s\n", line)
			return nil
		case e.Terminal():
			bar.Of(done, all, line)
		case time.Since(said) >= time.Minute:
			said = time.Now()
			fmt.Fprintln(e.Stderr, line)
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
		}
	}
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
