//go:build unix

package pebblekv

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// held is the error of Lock while another process has the store.
const held = syscall.EAGAIN

// disk is the machine's file system. It locks the folder of a lock file instead of the file, so that deleting the file
// does not unlock the store, and a folder that is mounted read-only can be locked.
type disk struct{ vfs.FS }

// Lock implements vfs.FS.
func (disk) Lock(name string) (io.Closer, error) {
	f, err := os.Open(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
