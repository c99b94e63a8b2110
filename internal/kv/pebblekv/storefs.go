package pebblekv

import (
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

	"skein.blue/internal/human"
	"skein.blue/internal/kv"
)

// storeFS is the file system under the engine. It does three things.
//
// It delays the syncs of the write-ahead log. Pebble offers two commits: NoSync,
// which returns while the write still lies in this process, so that a SIGKILL
// loses it; and Sync, which waits for the disk. What a commit here promises lies
// between the two: when it returns, the write is with the operating system. So log
// files are opened through storeFS, where a sync only marks the file, and a ticker
// syncs the marked files for real. A log that is closed is synced first, so that
// only the newest log can have a loose end after a power failure, which is what
// Pebble's recovery expects.
//
// It looks how much room the disk has left, so that writing ends before it is full
// and the engine can still close what it has.
//
// It keeps the guard of the manifest (guard.go) and of the logs (logguard.go).
type storeFS struct {
	vfs.FS

	dir     string
	reserve uint64 // bytes that must stay free
	await   bool   // Options.AwaitSpace
	free    atomic.Uint64
	known   atomic.Bool // free is known
	low     atomic.Bool // free fell below reserve, and has not risen a tenth above it since

	mu    sync.Mutex // guards the fields below
	dirty map[*walFile]struct{}
	err   error // the first sync that failed: the store must not go on

	syncing sync.Mutex // held during a sync; taken before mu

	guarding sync.Mutex // guards guard and unsaved, and orders the writes of the guard
	guard    guard
	unsaved  bool // a log was synced, and the guard does not say so yet

	// fatal is called, once the store is open, where a log cannot be made: the engine
	// would panic.
	fatal func(error)

	quit chan struct{}
	done sync.WaitGroup
}

// memtableSize is the size of a memtable, of the memory that the engine has.
func memtableSize(memory int64) int64 { return min(max(memory*2/9, 4<<20), 128<<20) }

func newStoreFS(fs vfs.FS, o Options) *storeFS {
	memory := o.Memory
	if memory <= 0 {
		memory = DefaultMemory
	}
	s := &storeFS{FS: fs, dir: o.Dir, dirty: make(map[*walFile]struct{}), quit: make(chan struct{})}
	// What the memtables hold is still to be written, and their logs stay meanwhile.
	s.reserve = max(uint64(64<<20+3*memtableSize(memory)), o.MinFree)
	s.await = o.AwaitSpace && !o.ReadOnly
	s.look()
	return s
}

// look asks the system how much room there is.
func (fs *storeFS) look() {
	// A file system that has no size, such as one in memory, tells nothing.
	if du, err := fs.FS.GetDiskUsage(fs.dir); err == nil && du.TotalBytes > 0 {
		fs.free.Store(du.AvailBytes)
		fs.known.Store(true)
		switch {
		case du.AvailBytes < fs.reserve:
			fs.low.Store(true)
		case du.AvailBytes >= fs.resumes():
			fs.low.Store(false)
		}
	}
}

func (fs *storeFS) freeBytes() (uint64, bool) { return fs.free.Load(), fs.known.Load() }

// resumes is how many free bytes end a shortage. It is above reserve, so that what a write and
// a compaction take in turns does not stop and resume the writer every second.
func (fs *storeFS) resumes() uint64 { return fs.reserve + min(fs.reserve/10, 1<<30) }

// full returns kv.ErrDiskFull if the disk has too little free space.
func (fs *storeFS) full() error {
	if !fs.low.Load() {
		return nil
	}
	return fmt.Errorf("pebblekv: %w: the disk of %s has %d MiB free, and writing needs %d MiB (--min-free); free some space, or move the store",
		kv.ErrDiskFull, fs.dir, fs.free.Load()>>20, fs.resumes()>>20)
}

// room is full, for who is about to open the store.
func (fs *storeFS) room() error {
	fs.look()
	return fs.full()
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

// watchSpace measures the free space, and logs when it becomes too little and when it is enough
// again, if writes wait for it.
func (fs *storeFS) watchSpace(log *slog.Logger) {
	was := fs.low.Load()
	fs.look()
	switch is := fs.low.Load(); {
	case !fs.await: // Update returns the error
	case is && !was:
		log.Error("disk full: indexing stops until there is space, and queries are still answered; free some space, or move the store",
			"folder", fs.dir, "free", human.Bytes(fs.free.Load()), "resumes_at", human.Bytes(fs.resumes()))
	case was && !is:
		log.Info("the disk has space again: indexing resumes", "folder", fs.dir, "free", human.Bytes(fs.free.Load()))
	}
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
	case err != nil && fs.fatal != nil && strings.HasSuffix(base, logSuffix):
		fs.fatal(fmt.Errorf("making the write-ahead log %s: %w", base, err))
		return f, err
	case noRoom(err):
		<-time.After(tryAgain) // the engine would try again at once, for ever
		return f, err
	case err != nil:
		return f, err
	case strings.HasSuffix(base, logSuffix):
		return &walFile{File: f, fs: fs, written: logMark{Log: base}}, nil
	case strings.HasPrefix(base, manifestPrefix):
		return newManifestFile(fs, base, f)
	}
	return patientFile{f}, nil
}

// patientFile is a table that the engine writes in the background. After an error the engine
// tries again at once, so a write that fails for want of space takes a while.
type patientFile struct{ vfs.File }

// Write implements vfs.File.
func (f patientFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if isFull(err) {
		<-time.After(tryAgain)
	}
	return n, err //nolint:wrapcheck // it is the engine's
}

// noRoom reports that a file could not be made or written for want of room, or of
// descriptors.
func noRoom(err error) bool {
	return isFull(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// tryAgain is how long the engine waits where a file cannot be made for want of
// room or of descriptors.
const tryAgain = 200 * time.Millisecond

// syncFolder makes sure that the names of the store's files are on disk.
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

// Create implements vfs.FS. The engine makes a manifest, and then a marker file whose
// name says which manifest to read. The manifest's own name must be on disk before:
// else a power failure can leave a marker that names nothing.
func (fs *storeFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(fs.PathBase(name), manifestMarker) {
		if err := fs.syncFolder(); err != nil {
			return nil, err
		}
	}
	f, err := fs.FS.Create(name, category)
	return fs.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (fs *storeFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	fs.forgetLog(fs.PathBase(oldname)) // the engine overwrites only what it has flushed
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f, err)
}

// Remove implements vfs.FS.
func (fs *storeFS) Remove(name string) error {
	fs.forgetLog(fs.PathBase(name))
	return fs.FS.Remove(name) //nolint:wrapcheck // it is the engine's
}

// walFile is a log being written. The engine writes it from its beginning on, and in
// one goroutine, also where it overwrites an older log.
type walFile struct {
	vfs.File
	fs     *storeFS
	mu     sync.Mutex // a real sync and Close exclude each other
	closed bool

	writing sync.Mutex // guards written; held only for a moment, never during a sync
	written logMark
	short   bool // a write failed in the middle: later syncs promise nothing more
}

// Write implements vfs.File. A file may change the bytes that it was given, so they are
// summed before they are written.
func (f *walFile) Write(p []byte) (int, error) {
	sum := crc32.Update(f.written.CRC, castagnoli, p) // only Write changes CRC
	n, err := f.File.Write(p)
	f.writing.Lock()
	defer f.writing.Unlock()
	if n < len(p) {
		f.short = true
	} else {
		f.written.Bytes += int64(n)
		f.written.CRC = sum
	}
	return n, err //nolint:wrapcheck // it is the engine's
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

// syncAndMark syncs the file, and notes for the guard what was written before.
func (f *walFile) syncAndMark() error {
	f.writing.Lock()
	written, short := f.written, f.short
	f.writing.Unlock()
	if err := f.File.Sync(); err != nil {
		return err //nolint:wrapcheck // it is the engine's
	}
	if !short { // the mark of an earlier sync stays
		f.fs.markLog(written)
	}
	return nil
}

// Sync implements vfs.File: the file is synced later.
func (f *walFile) Sync() error { f.mark(); return nil }

// SyncData implements vfs.File: the file is synced later.
func (f *walFile) SyncData() error { f.mark(); return nil }

// SyncTo implements vfs.File. It promises nothing, as its contract allows.
func (f *walFile) SyncTo(int64) (bool, error) { f.mark(); return false, nil }

// Preallocate implements vfs.File. Nothing is set aside: a log would take the size
// of a memtable on disk while it is empty, and it is synced once a second at most.
func (f *walFile) Preallocate(int64, int64) error { return nil }

// Close implements vfs.File. It syncs for real.
func (f *walFile) Close() error {
	f.fs.mu.Lock()
	delete(f.fs.dirty, f)
	f.fs.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return errors.Join(f.syncAndMark(), f.File.Close())
}
