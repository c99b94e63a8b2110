// Package crashmem is a file system in memory for tests that crash a store: Pebble's, without a deadlock.
package crashmem

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a vfs.MemFS that can be cloned while a store uses it. In Pebble 2.1.7, MemFS.ReuseForWrite locks for reading, and its Rename
// does so again. If CrashClone asks for the lock in between, all of them wait forever.
type FS struct {
	*vfs.MemFS

	reuse sync.RWMutex // held for reading by ReuseForWrite, for writing by CrashClone
}

// New returns an empty file system.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns the file system that a crash would leave.
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *FS {
	f.reuse.Lock()
	defer f.reuse.Unlock()
	return &FS{MemFS: f.MemFS.CrashClone(cfg)}
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.reuse.RLock()
	defer f.reuse.RUnlock()
	return f.MemFS.ReuseForWrite(oldname, newname, category) //nolint:wrapcheck // as MemFS does
}
