package pebblekv

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble accepts damage silently. It reads a manifest, which lists the tables of the store as a sequence of edits, up to
// the first broken edit, deletes later tables as leftovers, and serves an older state as the newest. It reads the newest
// write-ahead log up to the first broken record, torn by a crash or damaged later. So a file of JSON beside them, the
// guard, records how many bytes of each were synced, and their CRC-32C:
//
//	{"marks":[{"file":"MANIFEST-000012","bytes":3410,"crc":2914098370},
//	          {"file":"000017.log","bytes":5242880,"crc":1093849203}]}
//
// The guard is written after every sync, never before. So a crash leaves at least what the guard says, and never looks
// like damage. Pebble makes the marker that names a manifest after it has synced the manifest, so every store has a guard
// with its manifest.
//
// The guard may list deleted files, because it is only written after the next sync. The manifest says which logs matter:
// those from its newest log number on. All earlier logs were flushed into tables, which the manifest lists.
const (
	guardFile      = "skein.manifest"
	manifestPrefix = "MANIFEST-"
	firstManifest  = "MANIFEST-000001"
	manifestMarker = "marker.manifest." // prefix of Pebble's file that names the manifest
	logSuffix      = ".log"
	maxGuard       = 64 << 10 // limits the bytes read of a guard
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A mark records the synced part of a file.
type mark struct {
	File  string `json:"file"`  // its name
	Bytes int64  `json:"bytes"` // how many bytes, from the beginning
	CRC   uint32 `json:"crc"`   // their CRC-32C
}

// guard is the content of the guard.
type guard struct {
	mu      sync.Mutex // guards the fields below, and orders the writes of the file
	marks   []mark
	unsaved bool // the file lacks marks
}

// set replaces the mark of a file. saveGuard writes it.
func (g *guard) set(m mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.marks = append(slices.DeleteFunc(g.marks, func(old mark) bool { return old.File == m.File }), m)
	g.unsaved = true
}

// drop drops the marks of files that Pebble no longer needs.
func (g *guard) drop(gone func(mark) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.marks = slices.DeleteFunc(g.marks, gone)
}

// saveGuard writes the guard if a file was marked since the last time.
func (fs *storeFS) saveGuard() error {
	g := &fs.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.unsaved {
		return nil
	}
	err := fs.writeMarks(g.marks)
	g.unsaved = err != nil
	return err
}

// saveLogs is saveGuard after syncs of logs. If the disk is full, the older guard stays: it promises less, and is correct.
// The next sync tries again.
func (fs *storeFS) saveLogs() error {
	err := fs.saveGuard()
	if noRoom(err) {
		return nil
	}
	return err
}

type marks struct {
	Marks []mark `json:"marks"`
}

// writeMarks replaces the guard in a folder. It need not sync the folder: an older guard is also correct.
func (p place) writeMarks(all []mark) error {
	fail := func(err error) error { return fmt.Errorf("pebblekv: the guard of %s: %w", p.dir, err) }
	b, err := json.Marshal(marks{all})
	if err != nil {
		return fail(err)
	}
	name := p.PathJoin(p.dir, guardFile)
	f, err := p.FS.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fail(err)
	}
	_, err = f.Write(append(b, '\n'))
	// Without the sync, a power failure could leave an empty file under the name.
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = p.FS.Rename(name+".new", name)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// readMarks reads the guard. There are no marks if it is missing or unreadable.
func (p place) readMarks() ([]mark, error) {
	f, err := p.FS.Open(p.PathJoin(p.dir, guardFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, maxGuard))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("pebblekv: the guard of %s: %w", p.dir, err)
	}
	var g marks
	_ = json.Unmarshal(b, &g) // an unreadable guard has no mark of the manifest, which prove reports
	return g.Marks, nil
}

// markedFile is a manifest or a log being written. Pebble writes it from its beginning and in one goroutine, even if it
// overwrites an older log.
type markedFile struct {
	vfs.File

	fs      *storeFS
	mu      sync.Mutex // guards the fields below; held only for a moment, never during a sync
	written mark
	short   bool // a write was incomplete: later syncs do not move the mark
}

// Write implements vfs.File. A file may change the bytes that it receives, so Write
// computes their checksum first.
func (f *markedFile) Write(p []byte) (int, error) {
	sum := crc32.Update(f.written.CRC, castagnoli, p) // only Write changes CRC
	n, err := f.File.Write(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < len(p) {
		f.short = true
	} else {
		f.written.Bytes += int64(n)
		f.written.CRC = sum
	}
	return n, err
}

// syncAndMark syncs the file, and marks what was written before the sync.
func (f *markedFile) syncAndMark() error {
	f.mu.Lock()
	written, short := f.written, f.short
	f.mu.Unlock()
	if err := f.File.Sync(); err != nil {
		return err
	}
	if !short { // the mark of an earlier sync stays
		f.fs.guard.set(written)
	}
	return nil
}

// manifestFile is a manifest being written. A sync writes the guard, too.
type manifestFile struct{ *markedFile }

// Sync implements vfs.File.
func (f manifestFile) Sync() error {
	if err := f.syncAndMark(); err != nil {
		return err
	}
	return f.fs.saveGuard()
}

// SyncData implements vfs.File.
func (f manifestFile) SyncData() error { return f.Sync() }

// walFile is a log being written. Its syncs only schedule the real one (storeFS).
type walFile struct {
	*markedFile

	syncing sync.Mutex // held during a real sync and during Close; guards closed
	closed  bool
}

// Write implements vfs.File.
func (f *walFile) Write(p []byte) (int, error) {
	n, err := f.markedFile.Write(p)
	if err != nil { // Pebble writes no more to this log, and panics when it begins the next
		return n, f.fs.end(fmt.Errorf("writing the write-ahead log %s: %w", f.written.File, err))
	}
	return n, nil
}

func (f *walFile) schedule() {
	f.fs.mu.Lock()
	f.fs.dirty[f] = struct{}{}
	f.fs.mu.Unlock()
}

func (f *walFile) syncNow() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	if f.closed {
		return nil
	}
	return f.syncAndMark()
}

// Sync implements vfs.File.
func (f *walFile) Sync() error { f.schedule(); return nil }

// SyncData implements vfs.File.
func (f *walFile) SyncData() error { f.schedule(); return nil }

// SyncTo implements vfs.File. Its contract allows that nothing is synced yet.
func (f *walFile) SyncTo(int64) (bool, error) { f.schedule(); return false, nil }

// Preallocate implements vfs.File. It allocates nothing: an empty log would take the
// space of a memtable, and preallocation would save little, with one sync a second.
func (f *walFile) Preallocate(int64, int64) error { return nil }

// Close implements vfs.File. It syncs the file first.
func (f *walFile) Close() error {
	f.fs.mu.Lock()
	delete(f.fs.dirty, f)
	f.fs.mu.Unlock()
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.closed = true
	if err := errors.Join(f.syncAndMark(), f.File.Close()); err != nil {
		return f.fs.end(fmt.Errorf("completing the write-ahead log %s: %w", f.written.File, err))
	}
	return nil
}
