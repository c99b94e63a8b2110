package pebblekv

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
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
// It keeps the guard of the manifest (guard.go) and of the logs (logguard.go).
type storeFS struct {
	place
	space

	mu    sync.Mutex // guards the fields below
	dirty map[*walFile]struct{}
	err   error    // of the first failed sync; the store must not continue
	begun bool     // a log was made since the store was opened
	kept  []string // flushed logs to remove once a newer one is on disk (Remove)

	syncing sync.Mutex // held during a sync; taken before mu

	guarding sync.Mutex // guards guard and unsaved, and orders the writes of the guard
	guard    guard
	unsaved  bool // a log was synced after the last write of the guard

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
	reserve uint64 // below so many free bytes, the disk counts as full
	await   bool   // Options.AwaitSpace
	free    atomic.Uint64
	known   atomic.Bool // free is known
	low     atomic.Bool // free fell below reserve, and has not risen a tenth above it since
}

// memtableSize returns the size of a memtable, given the engine's memory.
func memtableSize(memory int64) int64 { return min(max(memory*2/9, 4<<20), 128<<20) }

// leastFree returns how many bytes of the disk the engine needs: the memtables must still be
// written to disk, while their logs stay.
func leastFree(memory int64) uint64 {
	if memory <= 0 {
		memory = DefaultMemory
	}
	return uint64(64<<20 + 3*memtableSize(memory))
}

// look updates the free space of the disk.
func (sp *space) look() {
	// A file system without a size, such as one in memory, has no limit.
	if du, err := sp.in.GetDiskUsage(sp.in.dir); err == nil && du.TotalBytes > 0 {
		sp.free.Store(du.AvailBytes)
		sp.known.Store(true)
		switch {
		case du.AvailBytes < sp.reserve:
			sp.low.Store(true)
		case du.AvailBytes >= sp.resumes():
			sp.low.Store(false)
		}
	}
}

func (sp *space) freeBytes() (uint64, bool) { return sp.free.Load(), sp.known.Load() }

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

// room is full for Open: it runs look first.
func (sp *space) room() error {
	sp.look()
	return sp.full()
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
	case strings.HasSuffix(base, logSuffix):
		fs.mu.Lock()
		fs.begun = true
		fs.mu.Unlock()
		return &walFile{File: f, fs: fs, written: logMark{Log: base}}, nil
	case strings.HasPrefix(base, manifestPrefix):
		return newManifestFile(fs, base, f)
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
	begun := d.fs.hasBegun()
	if err := d.File.Sync(); err != nil {
		return d.fs.end(fmt.Errorf("writing the names of the store's files to disk: %w", err))
	}
	if begun {
		d.fs.removeKept()
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

// ReuseForWrite implements vfs.FS.
func (fs *storeFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	fs.forgetLog(fs.PathBase(oldname)) // Pebble only overwrites flushed logs
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err)
}

// Remove implements vfs.FS. When Pebble opens a store, it flushes the logs that it finds and
// removes them, and only then makes its own. A crash in between would leave no log, like a store
// whose logs somebody deleted (lostWrites). So these logs stay until the new one is on disk.
func (fs *storeFS) Remove(name string) error {
	if fs.elsewhere(name) {
		return fs.FS.Remove(name)
	}
	if strings.HasSuffix(name, logSuffix) {
		fs.mu.Lock()
		begun := fs.begun
		if !begun {
			fs.kept = append(fs.kept, name)
		}
		fs.mu.Unlock()
		if !begun {
			return nil
		}
	}
	fs.forgetLog(fs.PathBase(name))
	return fs.FS.Remove(name)
}

// hasBegun reports whether a log was made since the store was opened.
func (fs *storeFS) hasBegun() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.begun
}

// removeKept removes the logs that Remove kept, if a newer log is on disk.
func (fs *storeFS) removeKept() {
	fs.mu.Lock()
	kept := fs.kept
	fs.kept = nil
	fs.mu.Unlock()
	for _, name := range kept {
		_ = fs.Remove(name) // if it fails, the next Open removes the log
	}
}

// walFile is a log being written. Pebble writes it from its beginning and in one
// goroutine, even if it overwrites an older log.
type walFile struct {
	vfs.File
	fs     *storeFS
	mu     sync.Mutex // held during a real sync and during Close; guards closed
	closed bool

	writing sync.Mutex // guards written; held only for a moment, never during a sync
	written logMark
	short   bool // a write was incomplete: later syncs do not move the mark
}

// Write implements vfs.File. A file may change the bytes that it receives, so Write
// computes their checksum first.
func (f *walFile) Write(p []byte) (int, error) {
	sum := crc32.Update(f.written.CRC, castagnoli, p) // only Write changes CRC
	n, err := f.File.Write(p)
	f.writing.Lock()
	if n < len(p) {
		f.short = true
	} else {
		f.written.Bytes += int64(n)
		f.written.CRC = sum
	}
	f.writing.Unlock() // end may not return
	if err != nil {    // Pebble writes no more to this log, and panics when it begins the next
		return n, f.fs.end(fmt.Errorf("writing the write-ahead log %s: %w", f.written.Log, err))
	}
	return n, nil
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
	return f.syncAndMark()
}

// syncAndMark syncs the file, and marks what was written before the sync.
func (f *walFile) syncAndMark() error {
	f.writing.Lock()
	written, short := f.written, f.short
	f.writing.Unlock()
	if err := f.File.Sync(); err != nil {
		return err
	}
	if !short { // the mark of an earlier sync stays
		f.fs.markLog(written)
	}
	return nil
}

// Sync implements vfs.File. It only schedules the sync.
func (f *walFile) Sync() error { f.mark(); return nil }

// SyncData implements vfs.File. It only schedules the sync.
func (f *walFile) SyncData() error { f.mark(); return nil }

// SyncTo implements vfs.File. It only schedules the sync, as its contract allows.
func (f *walFile) SyncTo(int64) (bool, error) { f.mark(); return false, nil }

// Preallocate implements vfs.File. It allocates nothing: an empty log would take the
// space of a memtable, and preallocation would save little, with one sync a second.
func (f *walFile) Preallocate(int64, int64) error { return nil }

// Close implements vfs.File. It syncs the file first.
func (f *walFile) Close() error {
	f.fs.mu.Lock()
	delete(f.fs.dirty, f)
	f.fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if err := errors.Join(f.syncAndMark(), f.File.Close()); err != nil {
		return f.fs.end(fmt.Errorf("completing the write-ahead log %s: %w", f.written.Log, err))
	}
	return nil
}
