package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
	"skein.blue/query"
	"skein.blue/query/evidence"
)

// This file makes backups of a store in a folder, automatically or for skein backup, to which the
// daemon lends a checkpoint.

// checkpoints is the folder inside a store's for its checkpoints. A start removes what is there.
const checkpoints = "checkpoints"

// ErrNoCheckpoint is returned by Checkpoint, wrapped, for an engine that cannot make one.
var ErrNoCheckpoint = errors.New("a store on FoundationDB has no files that skein could copy; FoundationDB's own tools back it up (Backups in docs/operating.md), and skein export reads it with --store fdb://…")

// A Checkpoint is a copy of the store at one moment, in a folder.
type Checkpoint struct {
	Folder string    `json:"folder"` // absolute
	Time   time.Time `json:"time"`
	// Live says that a daemon indexes and answers from the store, which goes first.
	Live bool `json:"live"`

	close func() error // the store, which stays locked; nil if it is open anyway
}

// Remove removes it: the folder at once, if it can, so that a reader of its files knows why they are gone.
func (c *Checkpoint) Remove() error {
	if gone := c.Folder + ".gone"; os.Rename(c.Folder, gone) == nil {
		c.Folder = gone
	}
	if err := os.RemoveAll(c.Folder); err != nil {
		return fmt.Errorf("removing a copy of the store: %w", err)
	}
	if c.close != nil {
		return c.close()
	}
	return nil
}

// Checkpoint makes a checkpoint of the store. The caller must remove it.
func (x *Index) Checkpoint(ctx context.Context) (c Checkpoint, err error) {
	c, err = checkpointOf(ctx, x.KV, x.Path)
	c.Live = true
	return c, err
}

// CheckpointClosed makes a checkpoint of a store that no process has open, and locks the store until it is removed.
func CheckpointClosed(ctx context.Context, o StoreOptions) (c Checkpoint, err error) {
	s, err := OpenStore(ctx, o)
	if err != nil {
		return c, err
	}
	if err = removeCheckpoints(o.Store); err == nil {
		c, err = checkpointOf(ctx, s, o.Store)
	}
	if c.close = s.Close; err != nil {
		err = errors.Join(err, s.Close())
	}
	return c, err
}

func checkpointOf(ctx context.Context, store kv.Store, dir string) (c Checkpoint, err error) {
	s, ok := store.(*pebblekv.Store)
	if !ok {
		return c, ErrNoCheckpoint
	}
	parent, err := filepath.Abs(filepath.Join(dir, checkpoints))
	if err == nil {
		err = os.MkdirAll(parent, 0o755)
	}
	if err != nil {
		return c, fmt.Errorf("making a folder for a copy of the store: %w", err)
	}
	c.Time = time.Now()
	c.Folder = filepath.Join(parent, c.Time.UTC().Format("20060102T150405.000000000Z"))
	return c, s.Checkpoint(ctx, c.Folder)
}

// removeCheckpoints removes the checkpoints that killed processes left in a store's folder, which
// the caller has locked.
func removeCheckpoints(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, checkpoints)); err != nil {
		return fmt.Errorf("removing old copies of the store: %w", err)
	}
	return nil
}

// A BackupJob says where to back up to, and how. Run sets what depends on the checkpoint.
type BackupJob struct {
	Target backup.Target
	backup.CreateOptions
}

// Run backs up a checkpoint. It opens the checkpoint first, which proves that it is a whole store,
// and checks each table that is to be sent.
func (j *BackupJob) Run(ctx context.Context, c Checkpoint) (backup.Report, error) {
	summary, err := Summarize(ctx, c.Folder)
	if err != nil {
		return backup.Report{}, fmt.Errorf("the copy of the store cannot be opened: %w", err)
	}
	o, merger := j.CreateOptions, graph.Merger()
	o.Dir, o.Time, o.Store, o.Gently = c.Folder, c.Time, summary, c.Live
	o.Check = func(path string) error { return pebblekv.CheckFile(ctx, merger, path) }
	return backup.Create(ctx, j.Target, o)
}

// Summarize opens a store that nobody else uses, without changing it, and says what it holds.
func Summarize(ctx context.Context, dir string) (s backup.Summary, err error) {
	x, err := OpenIndex(ctx, StoreOptions{Store: dir, ReadOnly: true, Memory: 64 << 20})
	if err != nil {
		return s, err
	}
	err = x.Graph.View(ctx, func(v *ask.View) error {
		index := evidence.IndexOf(v)
		counts, err := v.Counts()
		if err != nil {
			return err
		}
		s = backup.Summary{Format: int(format.Newest), Accounts: counts.Accounts, Records: counts.Records, Complete: index.All() == nil}
		cursors, err := v.Cursors()
		for _, c := range cursors {
			if c.IsStream() && (s.Source == "" || c.Time.After(s.Seen)) {
				s.Source, s.Cursor, s.Seen = c.Source, int64(c.Seq), c.Time.UTC()
			}
		}
		return err
	})
	return s, errors.Join(err, x.Close(ctx))
}

// checkpointPatience is how long a request waits for the checkpoint of another, whose client may just have left, to be
// removed.
const checkpointPatience = 5 * time.Second

// checkpointEndpoint serves skein backup. POST /checkpoint makes a checkpoint, answers with it, and
// removes it when the client closes the connection, or is gone.
func (s *server) checkpointEndpoint(mux *http.ServeMux) {
	one := make(chan struct{}, 1) // checkpoints keep tables on the disk
	mux.HandleFunc("POST /checkpoint", func(w http.ResponseWriter, r *http.Request) {
		// The end of the connection is noticed only once the request has been read.
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<10)); err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		select {
		case one <- struct{}{}:
			defer func() { <-one }()
		case <-time.After(checkpointPatience):
			refuse(w, http.StatusConflict, errors.New("another checkpoint of this daemon's store is in use, by a backup or an export; wait until it has ended"))
			return
		}
		control := query.WithoutDeadline(w, r) // the client waits for as long as its backup takes
		c, err := s.Checkpoint(r.Context())
		if err != nil {
			refuse(w, http.StatusInternalServerError, err)
			return
		}
		defer func() {
			if err := c.Remove(); err != nil {
				s.log.Error("a checkpoint of the store cannot be removed, and keeps space on the disk until skein is restarted", "component", "backup", "folder", c.Folder, "error", err)
			}
		}()
		w.Header().Set("Content-Type", "application/json")
		if err := errors.Join(json.NewEncoder(w).Encode(&c), control.Flush()); err != nil {
			return
		}
		<-r.Context().Done()
	})
}

// BackupSchedule says when the daemon backs up automatically.
type BackupSchedule struct {
	Job   BackupJob
	Every time.Duration
}

// firstBackup is how long after the start the first backup may begin, if the last one is old.
const firstBackup = time.Minute

// backUp makes backups until ctx ends. The first one is due Every after the newest that the target
// has. last is the metric of the newest backup.
func (s *server) backUp(ctx context.Context, o *BackupSchedule, last prometheus.Gauge) {
	log := s.log.With("component", "backup", "target", o.Job.Target.String())
	wait := firstBackup
	if all, err := backup.List(ctx, o.Job.Target); err == nil && len(all) > 0 {
		newest := all[len(all)-1]
		last.Set(float64(newest.Unix()))
		wait = max(wait, time.Until(newest.Add(o.Every)))
	}
	wait = min(wait, o.Every)
	for failures := 0; ; {
		if outward.Wait(ctx, wait) != nil {
			return
		}
		start := time.Now()
		r, err := s.backUpOnce(ctx, o)
		next := o.Every
		switch {
		case ctx.Err() != nil:
			return
		case r.Time.IsZero():
			next = min(o.Every, time.Minute<<min(failures, 6))
			failures++
			log.Error("backup failed; the earlier backups are not affected", "error", err, "retry_in", next.String())
		default:
			if failures = 0; err != nil { // the backup is complete
				log.Error("cleanup after a backup failed; the next backup tries again", "error", err)
			}
			last.Set(float64(r.Time.Unix()))
			log.Info("backed up", "of", r.Time.Format(time.RFC3339), "store", say.Bytes(r.Bytes), "sent", say.Bytes(r.Sent), "removed_backups", r.Removed, "took", time.Since(start).Round(time.Millisecond).String())
		}
		wait = max(next-time.Since(start), time.Second)
	}
}

func (s *server) backUpOnce(ctx context.Context, o *BackupSchedule) (r backup.Report, err error) {
	c, err := s.Checkpoint(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.Remove()) }()
	return o.Job.Run(ctx, c)
}

// CheckFormat returns an error if this program cannot read a backed-up store.
func CheckFormat(m *backup.Manifest) error {
	if m.Store.Format == int(format.Newest) {
		return nil
	}
	return fmt.Errorf("%w: the backup has format %d and was made by %s, and this program reads %d: use that version, or index again", kv.ErrFormat, m.Store.Format, say.Line(m.Program), format.Newest)
}

// StoreExists reports whether a folder holds a store. Parts of a store are an error.
func StoreExists(dir string) (bool, error) { return pebblekv.Exists(dir) }
