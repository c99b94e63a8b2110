package pebblekv

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// storeFS is the file system under Pebble. It does three things.
//
// It delays the syncs of the write-ahead log. Pebble offers two commits: NoSync
// returns while the write is still in this process, so a SIGKILL loses it; Sync
// waits for the disk. A commit of this package promises something in between: when
// it returns, the operating system has the write. So Pebble commits with Sync, but a
// sync of a log only marks the file, and a ticker syncs the marked files for real.
// A log is synced before it is closed, so after a power failure only the newest log
// can be torn, as Pebble's recovery expects.
//
// It watches the free space of the disk. Writing ends before the disk is full, so
// Pebble can still close its files.
//
// It keeps the guard of the manifest and of the logs (guard.go).
type storeFS struct {
	place
	space

	guard guard

	mu    sync.Mutex // guards the fields below
	dirty map[*walFile]struct{}
	err   error // of the first failed sync; the store must not continue

	syncing sync.Mutex // held during a sync; taken before mu

	// fatal, once the store is open, is called if a log cannot be made, written or completed, or
	// the folder cannot be synced. Pebble would panic, over a mutex that it has unlocked, so that
	// nothing could recover from it.
	fatal   func(error)
	closing atomic.Bool // the store is being closed: Close returns the error instead

	quit chan struct{}
	done sync.WaitGroup
}

// place is the folder of a store, in its file system.
type place struct {
	vfs.FS

	dir string
}

// space is the free space of a folder's disk.
type space struct {
	in      place
	reserve uint64        // below so many free bytes, the disk counts as full
	await   bool          // Options.AwaitSpace
	free    atomic.Uint64 // 0: unknown
	low     atomic.Bool   // free fell below reserve, and has not risen a tenth above it since
}

// memtableSize returns the size of a memtable, given the engine's memory.
func memtableSize(memory int64) int64 { return min(max(memory*2/9, 4<<20), 128<<20) }

// leastFree returns how many bytes of the disk the engine needs: the memtables must still be
// written to disk, while their logs stay.
func leastFree(memory int64) uint64 { return uint64(64<<20 + 3*memtableSize(memory)) }

// look updates the free space of the disk.
func (sp *space) look() {
	// A file system without a size, such as one in memory, has no limit.
	if du, err := sp.in.GetDiskUsage(sp.in.dir); err == nil && du.TotalBytes > 0 {
		sp.free.Store(du.AvailBytes)
		switch {
		case du.AvailBytes < sp.reserve:
			sp.low.Store(true)
		case du.AvailBytes >= sp.resumes():
			sp.low.Store(false)
		}
	}
}

// resumes returns the number of free bytes that ends a shortage. It is above reserve, so that
// the space that writes and compactions take and free does not stop the writer every second.
func (sp *space) resumes() uint64 { return sp.reserve + min(sp.reserve/10, 1<<30) }

// full returns a kv.ErrDiskFull during a shortage of space, as look last found it.
func (sp *space) full() error {
	if !sp.low.Load() {
		return nil
	}
	return fmt.Errorf("pebblekv: %w: the disk of %s has %d MiB free, and writing needs %d MiB (--min-free); free some space, or move the store",
		kv.ErrDiskFull, sp.in.dir, sp.free.Load()>>20, sp.resumes()>>20)
}

// watchSpace measures the free space, and logs when it becomes too little and when it is enough
// again, if writes wait for it.
func (sp *space) watchSpace(log *slog.Logger) {
	was := sp.low.Load()
	sp.look()
	switch is := sp.low.Load(); {
	case !sp.await: // Update returns the error
	case is && !was:
		log.Error("disk full: indexing stops until there is space, and queries are still answered; free some space, or move the store",
			"folder", sp.in.dir, "free", say.Bytes(sp.free.Load()), "resumes_at", say.Bytes(sp.resumes()))
	case was && !is:
		log.Info("the disk has space again: indexing resumes", "folder", sp.in.dir, "free", say.Bytes(sp.free.Load()))
	}
}

func newStoreFS(fs vfs.FS, o Options) *storeFS {
	in := place{fs, filepath.Clean(o.Dir)}
	s := &storeFS{
		place: in,
		space: space{in: in, reserve: cmp.Or(o.MinFree, leastFree(o.Memory)), await: o.AwaitSpace && !o.ReadOnly},
		dirty: make(map[*walFile]struct{}), quit: make(chan struct{}),
	}
	s.look()
	return s
}

func (fs *storeFS) start(every time.Duration, log *slog.Logger) {
	fs.done.Go(func() {
		ticker := time.NewTicker(min(every, time.Second))
		defer ticker.Stop()
		synced := time.Now()
		for {
			select {
			case <-ticker.C:
				fs.watchSpace(log)
				if time.Since(synced) < every-every/10 {
					continue
				}
				synced = time.Now()
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

func (fs *storeFS) stop() error {
	close(fs.quit)
	fs.done.Wait()
	return fs.syncAll()
}

func (fs *storeFS) failed() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.err
}

// syncAll syncs every log that was written since its last sync, and then the guard.
func (fs *storeFS) syncAll() error {
	fs.syncing.Lock() // a second caller must wait for the files that the first is syncing
	defer fs.syncing.Unlock()
	fs.mu.Lock()
	files, err := fs.dirty, fs.err
	fs.dirty = map[*walFile]struct{}{}
	fs.mu.Unlock()
	for f := range files {
		err = errors.Join(err, f.syncNow())
	}
	if err == nil {
		err = fs.saveLogs()
	}
	if err != nil {
		fs.mu.Lock()
		fs.err = err
		fs.mu.Unlock()
	}
	return err
}

func (fs *storeFS) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	base := filepath.Base(name)
	switch {
	case fs.elsewhere(name):
		return f, err
	case err != nil && strings.HasSuffix(base, logSuffix):
		return f, fs.end(fmt.Errorf("making the write-ahead log %s: %w", base, err))
	case noRoom(err):
		<-time.After(tryAgain) // Pebble retries immediately and forever
		return f, err
	case err != nil:
		return f, err
	}
	marked := &markedFile{File: f, fs: fs, written: mark{File: base}}
	switch {
	case strings.HasSuffix(base, logSuffix):
		return &walFile{markedFile: marked}, nil
	case strings.HasPrefix(base, manifestPrefix):
		return manifestFile{marked}, nil
	}
	return patientFile{f}, nil
}

// elsewhere reports whether a file is not in the store's folder: it belongs to a checkpoint.
func (fs *storeFS) elsewhere(name string) bool { return fs.outside(fs.PathDir(name)) }

// outside reports whether a folder is not the store's.
func (fs *storeFS) outside(folder string) bool { return filepath.Clean(folder) != fs.dir }

// end calls fatal if the store is open, and returns err otherwise.
func (fs *storeFS) end(err error) error {
	if err != nil && fs.fatal != nil && !fs.closing.Load() {
		fs.fatal(err)
	}
	return err
}

// OpenDir implements vfs.FS.
func (fs *storeFS) OpenDir(name string) (vfs.File, error) {
	d, err := fs.FS.OpenDir(name)
	if err != nil || fs.outside(name) {
		return d, err
	}
	return storeFolder{d, fs}, nil
}

// storeFolder is the store's folder. Pebble syncs it after making a log, a table or a manifest.
type storeFolder struct {
	vfs.File
	fs *storeFS
}

// Sync implements vfs.File.
func (d storeFolder) Sync() error {
	if err := d.File.Sync(); err != nil {
		return d.fs.end(fmt.Errorf("writing the names of the store's files to disk: %w", err))
	}
	return nil
}

// patientFile is a table that Pebble writes in the background. It delays the error of a full
// disk, because Pebble retries immediately.
type patientFile struct{ vfs.File }

// Write implements vfs.File.
func (f patientFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if isFull(err) {
		<-time.After(tryAgain)
	}
	return n, err
}

// noRoom reports whether a file could not be made or written because there is no space
// or no file descriptor left.
func noRoom(err error) bool { return isFull(err) || noDescriptors(err) }

// noDescriptors reports whether a file could not be opened because there is no file descriptor
// left. It passes as soon as a connection ends.
func noDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// tryAgain delays Pebble's next attempt to make a file after noRoom.
const tryAgain = 200 * time.Millisecond

// syncFolder syncs the names of the store's files to disk.
func (fs *storeFS) syncFolder() error {
	d, err := fs.FS.OpenDir(fs.dir)
	if err != nil {
		return fmt.Errorf("pebblekv: syncing the folder %s: %w", fs.dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("pebblekv: syncing the folder %s: %w", fs.dir, err)
	}
	return nil
}

// Create implements vfs.FS. Pebble makes a manifest, and then a marker file whose name
// contains the manifest's. The manifest must be on disk first: else a power failure can
// leave a marker without a manifest.
func (fs *storeFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(fs.PathBase(name), manifestMarker) && !fs.elsewhere(name) {
		if err := fs.syncFolder(); err != nil {
			return nil, err
		}
	}
	f, err := fs.FS.Create(name, category)
	for isLog := strings.HasSuffix(name, logSuffix) && !fs.elsewhere(name); isLog && noDescriptors(err) && !fs.closing.Load(); {
		<-time.After(tryAgain) // Pebble cannot go on without this log, and would panic
		f, err = fs.FS.Create(name, category)
	}
	return fs.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS. Pebble only overwrites flushed logs.
func (fs *storeFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	fs.forget(oldname)
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err)
}

// Remove implements vfs.FS.
func (fs *storeFS) Remove(name string) error {
	if !fs.elsewhere(name) {
		fs.forget(name)
	}
	return fs.FS.Remove(name)
}

func (fs *storeFS) forget(name string) {
	base := fs.PathBase(name)
	fs.guard.drop(func(m mark) bool { return m.File == base })
}
