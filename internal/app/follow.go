package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
)

// This file serves the newest backup of a target: a node that only answers, from files. It opens a
// backup, answers from it, and changes to the next one when that comes. A request is answered from
// the backup that was the newest when it came.

// FollowOptions say what to follow.
type FollowOptions struct {
	Target backup.Target
	Trust  *backup.Trust // nil: signatures are not needed
	// Every is how often to look for a newer backup. A replaced one stays open six times as long.
	Every time.Duration
	// Dir is the folder for the restored backups, each in a folder of its own.
	Dir string
	// Store says how to open a restored backup; its Store is ignored.
	Store StoreOptions
	// Serve says what to serve. Its Consume is nil.
	Serve ServeOptions
	// Prepare, if set, completes what to serve from an opened backup.
	Prepare func(x *Index, o *ServeOptions) error
	Logger  *slog.Logger
}

// Follow serves the newest backup of a target until ctx ends. It returns an error if there is no
// backup to begin with; later it answers from what it has, and says so.
func Follow(ctx context.Context, o FollowOptions) (err error) {
	f := &follower{o: o, log: logger(o.Logger).With("component", "follow", "target", o.Target.String()), front: newFront(logger(o.Logger)), asOf: newFollowMetric(), ended: make(chan struct{})}
	f.o.Store.Memory = o.Store.memory() / 2 // two backups are open while one replaces the other
	t := newTasks(ctx)
	defer func() {
		t.end()
		close(f.ended)
		f.open.Wait()
		if s := f.current.Load(); s != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := f.front.listen(t.ctx, &o.Serve); err != nil {
		return err
	}
	if err := f.begin(t.ctx); err != nil {
		return err
	}
	f.front.serve(t, &o.Serve, f.handler(func(s *servedBackup) http.Handler { return s.handleAPI }), f.handler(func(s *servedBackup) http.Handler { return s.handleAdmin }))
	f.current.Load().answering(&o.Serve, f.front)
	f.run(t.ctx)
	f.log.Info("stopping")
	t.end()
	if cause := context.Cause(t.ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

type follower struct {
	o     FollowOptions
	log   *slog.Logger
	front *front
	asOf  prometheus.Gauge

	open    sync.WaitGroup // backups that were replaced and are not closed yet
	ended   chan struct{}  // closed once nobody listens
	current atomic.Pointer[servedBackup]
}

func newFollowMetric() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_follow_backup_timestamp_seconds", Help: "Time of the backup that queries are answered from (--follow)."})
}

// A servedBackup is a restored backup that queries are answered from.
type servedBackup struct {
	*server

	dir   string
	m     *backup.Manifest
	stop  context.CancelFunc
	ended chan error // of Serve

	handleAPI, handleAdmin http.Handler
}

func (s *servedBackup) close() error {
	s.stop()
	return errors.Join(<-s.ended, s.Close(context.Background()))
}

// handler answers each request from the backup that is current when it comes.
func (f *follower) handler(of func(*servedBackup) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { of(f.current.Load()).ServeHTTP(w, r) })
}

// change makes s the current backup. It closes and removes the one before when its requests have been answered: they may
// take a minute (front).
func (f *follower) change(s *servedBackup) {
	old := f.current.Swap(s)
	if old == nil {
		return
	}
	f.open.Go(func() {
		select {
		case <-time.After(6 * f.o.Every):
		case <-f.ended:
		}
		if err := errors.Join(old.close(), os.RemoveAll(old.dir)); err != nil {
			f.log.Error("closing an older backup failed", "folder", old.dir, "error", err)
		}
	})
}

// begin opens the newest backup that was restored before, or else that of the target.
func (f *follower) begin(ctx context.Context) error {
	entries, err := os.ReadDir(f.o.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--store: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == backup.LostFound })
	for _, e := range entries { // a folder that holds something else is not ours to fill
		if !e.IsDir() || !isBackupFolder(e.Name()) {
			return fmt.Errorf("the folder %s has other files than restored backups (%s): give --follow a --store of its own", f.o.Dir, say.Line(e.Name()))
		}
	}
	for _, e := range slices.Backward(entries) {
		dir := filepath.Join(f.o.Dir, e.Name())
		m, err := backup.Restored(dir)
		if err != nil {
			continue
		}
		if err := f.serve(ctx, dir, m); err != nil {
			f.log.Warn("a backup that was restored before cannot be opened; restoring it again, or a newer one", "folder", dir, "error", err)
			if errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrCorrupt) {
				if err := os.RemoveAll(dir); err != nil {
					return fmt.Errorf("removing a damaged backup: %w", err)
				}
			}
			continue
		}
		f.remove(func(other string) bool { return other < dir }) // older backups, and restores of them
		return nil
	}
	return f.look(ctx)
}

// remove removes the folders of other backups.
func (f *follower) remove(obsolete func(folder string) bool) {
	entries, _ := os.ReadDir(f.o.Dir)
	for _, e := range entries {
		if other := filepath.Join(f.o.Dir, e.Name()); obsolete(other) {
			if err := os.RemoveAll(other); err != nil {
				f.log.Error("an older backup cannot be removed", "folder", other, "error", err)
			}
		}
	}
}

const folderForm = "20060102T150405.000Z"

func isBackupFolder(name string) bool { _, err := time.Parse(folderForm, name); return err == nil }

// run looks for newer backups until ctx ends.
func (f *follower) run(ctx context.Context) {
	wait := time.Duration(0)
	for outward.Wait(ctx, wait) == nil {
		wait = f.o.Every
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			f.log.Error("cannot change to a newer backup; answering from the older one", "error", err, "retry_in", wait.String())
		}
	}
}

// look changes to the target's newest backup, if it is newer than the current one.
func (f *follower) look(ctx context.Context) error {
	m, err := backup.Find(ctx, f.o.Target, time.Time{}, f.o.Trust)
	if err != nil {
		return err
	}
	o := backup.RestoreOptions{Manifest: m, Dir: filepath.Join(f.o.Dir, m.Time.UTC().Format(folderForm))}
	if s := f.current.Load(); s != nil {
		switch {
		case m.Time.Equal(s.m.Time):
			return nil
		case m.Time.Before(s.m.Time):
			return fmt.Errorf("the target's newest backup, of %s, is older than the one that is answered from, of %s: somebody has removed backups, or set the target back", m.Time.Format(time.RFC3339), s.m.Time.Format(time.RFC3339))
		}
		o.Reuse = s.dir
	}
	if err := CheckFormat(m); err != nil {
		return err
	}
	start := time.Now()
	f.remove(func(other string) bool { return other != o.Dir && backup.Unfinished(other) }) // this one replaces them
	if was, err := backup.Restored(o.Dir); err != nil || !was.Time.Equal(m.Time) {          // it may have been restored, and not opened
		if err := backup.Restore(ctx, f.o.Target, o); err != nil {
			return err
		}
	}
	if err := f.serve(ctx, o.Dir, m); err != nil {
		return err
	}
	f.log.Info("answering from a backup", "of", m.Time.Format(time.RFC3339), "newest_event", m.Store.Seen.UTC().Format(time.RFC3339), "size", say.Bytes(m.Bytes()), "took", time.Since(start).Round(time.Millisecond).String())
	return nil
}

// serve opens a restored backup and makes it the current backup.
func (f *follower) serve(ctx context.Context, dir string, m *backup.Manifest) error {
	so := f.o.Store
	so.Store, so.ReadOnly, so.Create = dir, true, false
	so.Logger = slog.New(slog.DiscardHandler) // what it says of a start and an end is not of this process
	x, err := OpenIndex(ctx, so)
	if err != nil {
		return err
	}
	x.log = logger(f.o.Logger)
	o := f.o.Serve
	if f.o.Prepare != nil {
		if err := f.o.Prepare(x, &o); err != nil {
			return errors.Join(err, x.Close(ctx))
		}
	}
	x.Registry.MustRegister(f.asOf, f.front.refused)
	f.asOf.Set(float64(m.Time.Unix()))
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &servedBackup{dir: dir, m: m, stop: stop, ended: make(chan error, 1)}
	mounted := make(chan struct{})
	o.mount = func(serving *server, api, admin http.Handler) {
		s.server, s.handleAPI, s.handleAdmin = serving, api, admin
		close(mounted)
	}
	go func() { s.ended <- x.Serve(inner, o) }()
	select {
	case <-mounted:
	case err := <-s.ended:
		stop()
		return errors.Join(err, x.Close(ctx))
	}
	f.change(s)
	return nil
}
