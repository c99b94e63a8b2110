package harness

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashFS is a vfs.MemFS that can be cloned while a store uses it. In Pebble 2.1.7, MemFS.ReuseForWrite locks for reading, and its Rename
// does so again. If CrashClone asks for the lock in between, all of them wait forever.
type CrashFS struct {
	*vfs.MemFS

	reuse sync.RWMutex // held for reading by ReuseForWrite, for writing by CrashClone
}

// NewCrashFS returns an empty file system.
func NewCrashFS() *CrashFS { return &CrashFS{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns the file system that a crash would leave.
func (f *CrashFS) CrashClone(cfg vfs.CrashCloneCfg) *CrashFS {
	f.reuse.Lock()
	defer f.reuse.Unlock()
	return &CrashFS{MemFS: f.MemFS.CrashClone(cfg)}
}

// ReuseForWrite implements vfs.FS.
func (f *CrashFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.reuse.RLock()
	defer f.reuse.RUnlock()
	return f.MemFS.ReuseForWrite(oldname, newname, category) // as MemFS does
}
