package pebblekv

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walFS delays the syncs of the write-ahead log. Pebble offers two commits:
// NoSync, which returns while the write still lies in this process, so that a
// SIGKILL loses it; and Sync, which waits for the disk. What a commit here
// promises lies between the two: when it returns, the write is with the
// operating system. So log files are opened through walFS, where a sync only
// marks the file, and a ticker syncs the marked files for real. A log that is
// closed is synced first, so that only the newest log can have a loose end
// after a power failure, which is what Pebble's recovery expects.
type walFS struct {
	vfs.FS

	mu    sync.Mutex
	dirty map[*walFile]struct{}
	err   error // the first sync that failed: the store must not go on

	syncing sync.Mutex

	quit chan struct{}
	done sync.WaitGroup
}

func newWALFS(fs vfs.FS) *walFS {
	return &walFS{FS: fs, dirty: make(map[*walFile]struct{}), quit: make(chan struct{})}
}

func (fs *walFS) start(every time.Duration, log *slog.Logger) {
	fs.done.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if err := fs.syncAll(); err != nil {
					log.Error("syncing the write-ahead log failed; the store accepts no more writes", "error", err)
					return
				}
			case <-fs.quit:
				return
			}
		}
	})
}

func (fs *walFS) stop() error {
	close(fs.quit)
	fs.done.Wait()
	return fs.syncAll()
}

func (fs *walFS) failed() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.err
}

// syncAll syncs every log that was written since its last sync.
func (fs *walFS) syncAll() error {
	fs.syncing.Lock() // whoever comes second waits for what the first has taken on
	defer fs.syncing.Unlock()
	fs.mu.Lock()
	files := make([]*walFile, 0, len(fs.dirty))
	for f := range fs.dirty {
		files = append(files, f)
	}
	clear(fs.dirty)
	err := fs.err
	fs.mu.Unlock()
	for _, f := range files {
		err = errors.Join(err, f.syncNow())
	}
	if err != nil {
		fs.mu.Lock()
		fs.err = err
		fs.mu.Unlock()
	}
	return err
}

func (fs *walFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &walFile{File: f, fs: fs}, nil
}

// Create implements vfs.FS.
func (fs *walFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs *walFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err)
}

// walFile is a log being written.
type walFile struct {
	vfs.File
	fs     *walFS
	mu     sync.Mutex // a real sync and Close exclude each other
	closed bool
}

func (f *walFile) mark() {
	f.fs.mu.Lock()
	f.fs.dirty[f] = struct{}{}
	f.fs.mu.Unlock()
}

func (f *walFile) syncNow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	return f.File.Sync()
}

// Sync implements vfs.File: the file is synced later.
func (f *walFile) Sync() error { f.mark(); return nil }

// SyncData implements vfs.File: the file is synced later.
func (f *walFile) SyncData() error { f.mark(); return nil }

// SyncTo implements vfs.File. It promises nothing, as its contract allows.
func (f *walFile) SyncTo(int64) (bool, error) { f.mark(); return false, nil }

// Close implements vfs.File. It syncs for real.
func (f *walFile) Close() error {
	f.fs.mu.Lock()
	delete(f.fs.dirty, f)
	f.fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return errors.Join(f.File.Sync(), f.File.Close())
}
