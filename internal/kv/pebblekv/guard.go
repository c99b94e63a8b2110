package pebblekv

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
)

// Pebble's manifest lists the tables of the store as a sequence of edits. If it is
// truncated or damaged, Pebble reads up to that point, deletes later tables as
// leftovers, and serves an older state as the newest. So a file of JSON beside it,
// the guard, records its length at the last sync. The manifest is synced before the
// guard is written, and only grows, so it is never shorter than its guard says unless
// it lost something. The same file guards the logs (logguard.go).
const (
	guardFile      = "skein.manifest"
	manifestPrefix = "MANIFEST-"
	firstManifest  = "MANIFEST-000001"
	manifestMarker = "marker.manifest." // prefix of Pebble's file that names the manifest
	maxGuard       = 64 << 10           // limits the bytes read of a guard
)

type guard struct {
	Manifest string `json:"manifest"` // its file name
	Bytes    int64  `json:"bytes"`    // how many of its bytes were synced
	// Begun means that the store's marker was committed and synced: from then on a
	// store without it has lost data.
	Begun bool `json:"begun,omitempty"`
	// Logs records the synced part of each write-ahead log (logguard.go).
	Logs []logMark `json:"logs,omitempty"`
}

// manifestFile is a manifest being written.
type manifestFile struct {
	vfs.File

	fs      *storeFS
	name    string
	mu      sync.Mutex // guards the fields below
	written int64
}

func newManifestFile(fs *storeFS, name string, f vfs.File) (vfs.File, error) {
	return &manifestFile{File: f, fs: fs, name: name}, nil
}

// Write implements vfs.File.
func (f *manifestFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.mu.Lock()
	f.written += int64(n)
	f.mu.Unlock()
	return n, err
}

// Sync implements vfs.File.
func (f *manifestFile) Sync() error { return f.guarded(f.File.Sync) }

// SyncData implements vfs.File.
func (f *manifestFile) SyncData() error { return f.guarded(f.File.SyncData) }

func (f *manifestFile) guarded(sync func() error) error {
	f.mu.Lock()
	written := f.written
	f.mu.Unlock()
	if err := sync(); err != nil {
		return err
	}
	return f.fs.writeGuard(func(g *guard) { g.Manifest, g.Bytes = f.name, written })
}

// writeGuard changes the guard and replaces its file. It need not sync the folder: an
// older guard is also correct.
func (fs *storeFS) writeGuard(change func(*guard)) error {
	fs.guarding.Lock()
	defer fs.guarding.Unlock()
	change(&fs.guard)
	b, err := json.Marshal(fs.guard)
	if err != nil {
		return fmt.Errorf("pebblekv: the store's guard: %w", err)
	}
	name := fs.PathJoin(fs.dir, guardFile)
	f, err := fs.FS.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("pebblekv: the store's guard: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	// Without the sync, a power failure could leave an empty file under the name.
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = fs.FS.Rename(name+".new", name)
	}
	if err != nil {
		return fmt.Errorf("pebblekv: the store's guard: %w", err)
	}
	fs.unsaved = false
	return nil
}

// readGuard returns the guard, and whether there is a readable one.
func (fs *storeFS) readGuard() (g guard, ok bool, err error) {
	f, err := fs.FS.Open(fs.PathJoin(fs.dir, guardFile))
	if errors.Is(err, os.ErrNotExist) {
		return g, false, nil
	}
	if err != nil {
		return g, false, fmt.Errorf("pebblekv: the store's guard: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxGuard))
	if err = errors.Join(err, f.Close()); err != nil {
		return g, false, fmt.Errorf("pebblekv: the store's guard: %w", err)
	}
	return g, json.Unmarshal(b, &g) == nil && g.Manifest != "", nil
}

// isStoreFile reports whether a file name is one that only a store has.
func isStoreFile(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, logSuffix) || strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, "OPTIONS-")
}

// look reports whether there is a store in dir. Files of an incomplete store are a
// kv.ErrDamaged. look creates no files.
func look(fs vfs.FS, dir string) (found bool, err error) {
	switch st, err := fs.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("pebblekv: %s: %w", dir, err)
	case !st.IsDir():
		return false, fmt.Errorf("pebblekv: %s is not a folder: %w", dir, kv.ErrNotFound)
	}
	desc, err := pebble.Peek(dir, fs)
	if errors.Is(err, os.ErrPermission) {
		return false, forbidden(dir, err)
	}
	if err != nil {
		return false, fmt.Errorf("pebblekv: %s: %w: %w", dir, kv.ErrDamaged, err)
	}
	if desc.Exists {
		return true, nil
	}
	names, err := fs.List(dir)
	if err != nil {
		return false, fmt.Errorf("pebblekv: %s: %w", dir, err)
	}
	for _, name := range names {
		// An interrupted first start may leave its first manifest: Pebble makes the
		// marker next, and then the first log.
		if isStoreFile(name) && name != firstManifest {
			return false, fmt.Errorf("pebblekv: %s: %w: the manifest or its marker is missing, but other files of a store exist (%s)", dir, kv.ErrDamaged, name)
		}
	}
	return false, nil
}

// vacant returns ErrForeign if a folder without a store has anything that an interrupted first
// start cannot have left. A folder in it may be a store: the only place that a unit or a container
// can write to may have to hold the copy of the PLC directory, too.
func vacant(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("pebblekv: %s: %w", dir, err)
	}
	for _, name := range names {
		switch name {
		case "lost+found", "LOCK", firstManifest, guardFile, guardFile + ".new": // a file system has the first at its root
			continue
		}
		if inner, err := look(fs, fs.PathJoin(dir, name)); !strings.HasPrefix(name, "marker.") && (err != nil || !inner) {
			return fmt.Errorf("%w: %s has %q; name an empty folder, or one that does not exist yet", ErrForeign, dir, name)
		}
	}
	return nil
}

// Exists reports whether there is a store in a folder. Files of an incomplete store are a
// kv.ErrDamaged.
func Exists(dir string) (bool, error) { return look(vfs.Default, dir) }

// forbidden returns the error for a store that this user may not read or write.
func forbidden(dir string, err error) error {
	return fmt.Errorf("pebblekv: no permission to open %s: run skein as the owner of the folder: %w", dir, err)
}

// prove checks the manifest and the logs against the guard before a store is opened.
// If the guard is missing or names another manifest, as after a crash between the two,
// the store is first opened read-only, and must have its marker, before it is opened for writing.
func (s *Store) prove(o Options) error {
	desc, err := pebble.Peek(o.Dir, s.fs.FS)
	if errors.Is(err, os.ErrPermission) {
		return forbidden(o.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("pebblekv: %s: %w: %w", o.Dir, kv.ErrDamaged, err)
	}
	g, ok, err := s.fs.readGuard()
	if err != nil {
		return err
	}
	s.fs.guard = g
	guarded := ok && s.fs.PathBase(desc.ManifestFilename) == g.Manifest
	if !guarded {
		g.Bytes = 0
	}
	oldest, err := s.fs.readManifest(desc.ManifestFilename, g)
	if err != nil {
		return err
	}
	accept := o.AcceptLoss
	if o.ReadOnly { // accepting a loss changes the store
		accept = ""
	}
	if err := s.fs.proveLogs(oldest, accept, o.Logger); err != nil {
		return err
	}
	if guarded || o.Marker == nil || o.ReadOnly {
		return nil
	}
	return s.proveMarker(o)
}

// hasMarker checks that a begun store has its marker.
func (s *Store) hasMarker(marker []byte) error {
	if marker == nil || !s.fs.guard.Begun {
		return nil
	}
	if _, ok, err := (&reader{db: s.db}).Get(marker); err != nil || ok {
		return err
	}
	return fmt.Errorf("pebblekv: %s: %w: skein's marker is missing; logs or tables were lost", s.fs.dir, kv.ErrDamaged)
}

// noteBegun records in the guard that the marker is committed, if it is.
func (s *Store) noteBegun() error {
	_, ok, err := (&reader{db: s.db}).Get(s.marker)
	if err != nil || !ok {
		return err
	}
	if err := s.fs.syncAll(); err != nil { // the guard must not promise more than the log holds
		return err
	}
	if err := s.fs.writeGuard(func(g *guard) { g.Begun = true }); err != nil {
		return err
	}
	s.begun = true
	return nil
}

// readManifest reads a manifest to its end and compares it with the guard. It returns
// the number of the oldest unflushed log.
func (p place) readManifest(name string, g guard) (oldest uint64, err error) {
	f, err := p.FS.Open(name)
	if errors.Is(err, os.ErrPermission) {
		return 0, forbidden(p.dir, err)
	}
	if err != nil {
		return 0, fmt.Errorf("pebblekv: %s: %w: %w", p.dir, kv.ErrDamaged, err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("pebblekv: reading %s: %w", name, err)
	}
	if st.Size() < g.Bytes {
		return 0, fmt.Errorf("pebblekv: %s: %w: %s has %d bytes; %d were synced", p.dir, kv.ErrDamaged, g.Manifest, st.Size(), g.Bytes)
	}
	r := record.NewReader(f, 0)
	for end := int64(0); ; end = r.Offset() {
		rec, err := r.Next()
		var head []byte
		if err == nil {
			head, err = io.ReadAll(io.LimitReader(rec, editHead))
		}
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		switch {
		case err == nil:
			oldest = max(oldest, flushedBelow(head))
		case end < g.Bytes:
			return 0, fmt.Errorf("pebblekv: %s: %w: %s cannot be read from byte %d on: %w", p.dir, kv.ErrDamaged, g.Manifest, end, err)
		default:
			return oldest, nil
		}
	}
}

// proveMarker opens the store read-only and looks for its marker. Only an empty store
// may lack it.
func (s *Store) proveMarker(o Options) (err error) {
	po, release := s.pebbleOptions(o)
	defer release()
	po.ReadOnly = true
	db, err := pebble.Open(o.Dir, po)
	if err != nil {
		return fmt.Errorf("pebblekv: opening %s: %w", o.Dir, opening(err))
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	r := &reader{db: db}
	defer func() { err = errors.Join(err, r.close()) }()
	if _, ok, err := r.Get(o.Marker); err != nil || ok {
		return err
	}
	empty := true
	if err := r.Scan(nil, nil, false, func(_, _ []byte) (bool, error) { empty = false; return false, nil }); err != nil {
		return err
	}
	names, err := s.fs.FS.List(o.Dir)
	if err != nil {
		return fmt.Errorf("pebblekv: %s: %w", o.Dir, err)
	}
	for _, name := range names {
		empty = empty && !strings.HasSuffix(name, ".sst")
	}
	if !empty {
		return fmt.Errorf("pebblekv: %s: %w: skein's marker, part of the first write, is missing; the manifest may be truncated", o.Dir, kv.ErrDamaged)
	}
	return nil
}

// folderLock keeps other processes out. It locks the folder, which protects even if a
// file in it is deleted, and Pebble's lock file, for programs that know only that.
type folderLock struct {
	lock   *pebble.Lock
	folder io.Closer
}

func lockFolder(fs vfs.FS, o Options) (*folderLock, error) {
	l := &folderLock{}
	locked := func(err error) error {
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK) || strings.Contains(err.Error(), "lock held") {
			return fmt.Errorf("pebblekv: %s: %w", o.Dir, kv.ErrLocked)
		}
		if errors.Is(err, os.ErrPermission) {
			return forbidden(o.Dir, err)
		}
		return fmt.Errorf("pebblekv: locking %s: %w", o.Dir, err)
	}
	if o.FS == nil {
		folder, err := flock(o.Dir)
		if err != nil {
			return nil, locked(err)
		}
		l.folder = folder
	}
	lock, err := pebble.LockDirectory(o.Dir, fs)
	if err != nil {
		if l.folder != nil {
			err = errors.Join(err, l.folder.Close())
		}
		return nil, locked(err)
	}
	l.lock = lock
	return l, nil
}

// Close releases the locks.
func (l *folderLock) Close() error {
	err := l.lock.Close()
	if l.folder != nil {
		err = errors.Join(err, l.folder.Close())
	}
	return err
}

// unlockedFS does without a lock file if it cannot be made. On a file system that is
// mounted read-only, nobody else writes.
type unlockedFS struct{ vfs.FS }

// Lock implements vfs.FS.
func (fs unlockedFS) Lock(name string) (io.Closer, error) {
	c, err := fs.FS.Lock(name)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission) {
		return io.NopCloser(nil), nil
	}
	return c, err
}
