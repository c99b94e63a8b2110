package harness

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An Operation is one call to a Disk.
type Operation struct {
	Verb string // write, read, sync, close, create, reuse, rename, link or remove
	What string // log, table, manifest, options, marker, guard, folder or other: the kind of file
	Name string // the path of the file
}

// Point names the kind of an operation, such as "sync log". Faults are injected at points.
func (o Operation) Point() string { return o.Verb + " " + o.What }

// Disk is a file system that calls hooks at each operation. The zero hooks do nothing. It never
// wraps errors: the engine compares them.
type Disk struct {
	vfs.FS

	mu     sync.Mutex // guards the fields below
	before func(Operation) error
	seen   map[string]int
}

// NewDisk returns a Disk on fs.
func NewDisk(fs vfs.FS) *Disk { return &Disk{FS: fs, seen: map[string]int{}} }

// Before sets the hook that runs before each operation. Its error replaces the operation. The
// hook may run in several goroutines at once, and may block; nil removes it.
func (d *Disk) Before(hook func(Operation) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = hook
}

// Seen returns how often each point was passed.
func (d *Disk) Seen() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.seen)
}

func (d *Disk) enter(verb, name string) error { return d.pass(Operation{verb, what(name), name}) }

func (d *Disk) pass(o Operation) error {
	d.mu.Lock()
	d.seen[o.Point()]++
	hook := d.before
	d.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(o)
}

func what(name string) string {
	base := filepath.Base(name)
	switch {
	case strings.HasSuffix(base, ".log"):
		return "log"
	case strings.HasSuffix(base, ".sst"):
		return "table"
	case strings.HasPrefix(base, "MANIFEST-"):
		return "manifest"
	case strings.HasPrefix(base, "OPTIONS-"), strings.HasPrefix(base, "temporary."):
		return "options"
	case strings.HasPrefix(base, "marker."):
		return "marker"
	case strings.HasPrefix(base, "skein."):
		return "guard"
	}
	return "other"
}

// Create implements vfs.FS.
func (d *Disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.enter("create", name); err != nil {
		return nil, err
	}
	return d.wrap(name)(d.FS.Create(name, c))
}

// ReuseForWrite implements vfs.FS.
func (d *Disk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.enter("reuse", newname); err != nil {
		return nil, err
	}
	return d.wrap(newname)(d.FS.ReuseForWrite(oldname, newname, c))
}

// Open implements vfs.FS.
func (d *Disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap(name)(d.FS.Open(name, opts...))
}

// OpenReadWrite implements vfs.FS.
func (d *Disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap(name)(d.FS.OpenReadWrite(name, c, opts...))
}

// OpenDir implements vfs.FS.
func (d *Disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	return folder{f, d, name}, nil
}

// Link implements vfs.FS.
func (d *Disk) Link(oldname, newname string) error {
	if err := d.enter("link", newname); err != nil {
		return err
	}
	return d.FS.Link(oldname, newname)
}

// Rename implements vfs.FS.
func (d *Disk) Rename(oldname, newname string) error {
	if err := d.enter("rename", newname); err != nil {
		return err
	}
	return d.FS.Rename(oldname, newname)
}

// Remove implements vfs.FS.
func (d *Disk) Remove(name string) error {
	if err := d.enter("remove", name); err != nil {
		return err
	}
	return d.FS.Remove(name)
}

func (d *Disk) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &file{File: f, disk: d, name: name}, nil
	}
}

// file is an open file of a Disk.
type file struct {
	vfs.File
	disk *Disk
	name string
}

// Write implements vfs.File.
func (f *file) Write(p []byte) (int, error) {
	if err := f.disk.enter("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	if err := f.disk.enter("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, at)
}

// Read implements vfs.File.
func (f *file) Read(p []byte) (int, error) {
	if err := f.disk.enter("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, at int64) (int, error) {
	if err := f.disk.enter("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, at)
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if err := f.disk.enter("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	if err := f.disk.enter("sync", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f *file) SyncTo(n int64) (bool, error) {
	if err := f.disk.enter("sync", f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

// Close implements vfs.File.
func (f *file) Close() error {
	if err := f.disk.enter("close", f.name); err != nil {
		_ = f.File.Close()
		return err
	}
	return f.File.Close()
}

// Fd implements vfs.File. It hides the descriptor: Pebble would read around the Disk.
func (f *file) Fd() uintptr { return vfs.InvalidFd }

// folder is an open folder of a Disk.
type folder struct {
	vfs.File
	disk *Disk
	name string
}

// Sync implements vfs.File.
func (f folder) Sync() error {
	if err := f.disk.pass(Operation{"sync", "folder", f.name}); err != nil {
		return err
	}
	return f.File.Sync()
}
