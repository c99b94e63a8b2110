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
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
	"skein.blue/internal/kv"
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
	flags := append([]cli.Flag{
		&cli.StringFlag{Name: "archive", Usage: "the address of a Jetstream v2 archive; its key, if it wants one, is read from SKEIN_ARCHIVE_KEY", Destination: &p.archive, Sources: command.Env("archive")},
		&cli.StringSliceFlag{Name: "host", DefaultText: "all hosts of the relay", Usage: "fetch all repos of this PDS; several times for several"},
		&cli.StringSliceFlag{Name: "did", Usage: "fetch the repo of this account"},
		&cli.StringSliceFlag{Name: "car", Usage: "take this file, or all *.car in this folder: repos that were exported"},
		&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "the admin address of a running daemon, which does the work; off: do it here, in the store of --store", Destination: &admin, Sources: adminEnv()},
		s.RelayFlag(),
	}, append(s.PastFlags(), s.WriteFlags(e)...)...)
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
			return runBackfill(ctx, e, s, &p, admin, c.IsSet("admin"), c.IsSet("store"))
		},
	}
}

func resyncCommand(e *command.Environment) *cli.Command {
	var admin string
	return &cli.Command{
		Name: "resync", Usage: "have a running daemon fetch repos anew", ArgsUsage: "DID…",
		Flags: []cli.Flag{&cli.StringFlag{Name: "admin", Value: "http://127.0.0.1:3211", Usage: "the admin address of the daemon", Destination: &admin, Sources: adminEnv()}},
		Action: func(ctx context.Context, c *cli.Command) error {
			dids := c.Args().Slice()
			if len(dids) == 0 {
				return command.UsageError("skein resync takes the DIDs of the repos")
			}
			if err := checkDIDs("", dids); err != nil {
				return err
			}
			var said backfill.Status // it is skein's
			if err := adminOf(admin).post(ctx, "/resync", "application/json", asJSON(map[string]any{"dids": dids}), &said); err != nil {
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

// worker does the work: a daemon, or this process.
type worker interface {
	begin(ctx context.Context, p *past) error
	car(ctx context.Context, in io.Reader) (backfill.Placed, error)
	status(ctx context.Context) (backfill.Status, error)
}

func runBackfill(ctx context.Context, e *command.Environment, s *command.Settings, p *past, admin string, hasAdmin, hasStore bool) (err error) {
	var w worker
	create := true
	if admin != noAdmin && (hasAdmin || !hasStore) {
		d := adminOf(admin)
		_, err := d.status(ctx)
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
			fmt.Fprintln(e.Stderr, said)
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
			fmt.Fprintf(e.Stderr, "%s: %v\n", name, err)
			continue
		}
		fmt.Fprintf(e.Stdout, "%s: %s at %s: %s, %d records\n", name, placed.DID, placed.Rev, placed.Outcome, placed.Records)
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
			fmt.Fprintln(e.Stderr, st.Trouble)
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
	return strings.Join(parts, ", ")
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

// adminClient gives up where a daemon, or what listens in its place, says nothing for so long.
var adminClient = &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 30 * time.Second}}

// adminOf is the admin address of a running one.
type adminOf string

func (d adminOf) begin(ctx context.Context, p *past) error {
	if len(p.dids) > 0 {
		if err := d.post(ctx, "/resync", "application/json", asJSON(map[string]any{"dids": p.dids}), nil); err != nil {
			return err
		}
		if p.archive == "" && len(p.hosts) == 0 {
			return nil
		}
	}
	return d.post(ctx, "/backfill", "application/json", asJSON(map[string]any{"archive": p.archive, "hosts": p.hosts, "repos": p.archive == "" && len(p.hosts) == 0}), nil)
}

func (d adminOf) car(ctx context.Context, in io.Reader) (p backfill.Placed, err error) {
	err = d.post(ctx, "/car", "application/vnd.ipld.car", in, &p)
	return p, err
}

func (d adminOf) status(ctx context.Context) (st backfill.Status, err error) {
	err = d.ask(ctx, http.MethodGet, "/backfill", "", nil, &st)
	return st, err
}

func (d adminOf) post(ctx context.Context, path, contentType string, body io.Reader, into any) error {
	return d.ask(ctx, http.MethodPost, path, contentType, body, into)
}

func (d adminOf) ask(ctx context.Context, method, path, contentType string, body io.Reader, into any) (err error) {
	base := string(d)
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, body)
	if err != nil {
		return command.UsageError("--admin: %v", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	client := adminClient
	if path == "/car" || path == "/backfill" && method == http.MethodPost { // a repo may be large, and a relay slow
		client = new(http.Client)
	}
	resp, err := client.Do(req)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("interrupted while %s was asked", req.URL.Host)
	}
	if err != nil {
		return fmt.Errorf("no answer from a daemon at %s: is skein serve running there? %w", req.URL.Host, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode >= 300 {
		var said struct{ Error string }
		if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&said) != nil || said.Error == "" {
			return fmt.Errorf("%s answered %s: is --admin the admin address of skein serve?", req.URL.Host, resp.Status)
		}
		return errors.New(said.Error)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s answered something that is not skein's: is --admin the admin address of skein serve? %w", req.URL.Host, err)
	}
	return nil
}

// here does the work in this process.
type here struct {
	x       *app.Index
	stop    context.CancelFunc
	stopped chan error
}

func openHere(ctx context.Context, e *command.Environment, s *command.Settings, p *past, create bool) (*here, error) {
	so, err := s.StoreOptions(e)
	if err != nil {
		return nil, err
	}
	so.Create = create
	if so.Backfill, err = s.BackfillOptions(); err != nil {
		return nil, err
	}
	so.Backfill.Hosts = p.hosts
	app.LimitMemory(so)
	x, err := command.OpenIndex(ctx, so)
	if errors.Is(err, kv.ErrNotFound) && !create {
		return nil, command.UsageError("no daemon runs here, and there is no store in %s: start skein serve, name its admin address with --admin, or the folder of a store with --store", s.Store)
	}
	if err != nil {
		return nil, err
	}
	if err := rename(ctx, x.Graph, p.hosts); err != nil {
		return nil, errors.Join(err, x.Close(ctx))
	}
	running, stop := context.WithCancel(ctx)
	h := &here{x, stop, make(chan error, 1)}
	began := make(chan struct{})
	go func() { h.stopped <- x.Backfill.Run(running, func() { close(began) }) }()
	select {
	case <-began:
		return h, nil
	case err := <-h.stopped:
		stop()
		return nil, errors.Join(err, x.Close(ctx))
	}
}

// rename has what was interrupted go on with the hosts that are named now, where hosts had
// been named before, perhaps wrongly.
func rename(ctx context.Context, g *graph.Store, hosts []string) error {
	if b := g.Backfill(); len(hosts) == 0 || !b.Named {
		return nil
	}
	return g.ChangeBackfill(ctx, func(b *format.Backfill) {
		before := b.Hosts
		b.Hosts = map[string]format.HostBackfill{}
		for _, h := range hosts {
			h = backfill.HTTPAddress(h)
			b.Hosts[h] = before[h]
		}
	})
}

func (h *here) begin(ctx context.Context, p *past) error {
	var err error
	switch {
	case p.archive != "":
		err = h.x.Backfill.Archive(ctx, p.archive)
	case len(p.dids) > 0:
		if err = h.x.Backfill.Resync(ctx, "operator", p.dids...); err != nil || len(p.hosts) == 0 {
			return err
		}
		fallthrough
	default:
		err = h.x.Backfill.Hosts(ctx, p.hosts...)
	}
	if errors.Is(err, backfill.ErrBusy) { // it goes on with what was interrupted
		return nil
	}
	return err
}

func (h *here) car(ctx context.Context, in io.Reader) (backfill.Placed, error) {
	return h.x.Backfill.PlaceCAR(ctx, in)
}

func (h *here) status(ctx context.Context) (st backfill.Status, err error) {
	err = h.x.Graph.View(ctx, func(s *graph.Snapshot) error {
		counts, err := s.Counts()
		st = h.x.Backfill.Status(counts)
		return err
	})
	return st, err
}

func (h *here) close(ctx context.Context) error {
	h.stop()
	return errors.Join(<-h.stopped, h.x.Close(ctx))
}
