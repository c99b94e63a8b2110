package pebblekv

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
)

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
		ofStore := strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, logSuffix) || strings.HasPrefix(name, manifestPrefix) || strings.HasPrefix(name, "OPTIONS-")
		if ofStore && name != firstManifest {
			return false, fmt.Errorf("pebblekv: %s: %w: the manifest or its marker is missing, but other files of a store exist (%s)", dir, kv.ErrDamaged, name)
		}
	}
	return false, nil
}

// vacant returns ErrForeign if a folder without a store has anything that an interrupted first
// start cannot have left.
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
		if !strings.HasPrefix(name, "marker.") {
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

// Lock keeps others out of a folder until the lock is closed. It returns kv.ErrLocked if a store or another Lock has it.
func Lock(dir string) (*pebble.Lock, error) { return lockFolder(disk{vfs.Default}, dir) }

// lockFolder keeps other processes out.
func lockFolder(fs vfs.FS, dir string) (*pebble.Lock, error) {
	l, err := pebble.LockDirectory(dir, fs)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, held):
		return nil, fmt.Errorf("pebblekv: %s: %w", dir, kv.ErrLocked)
	case errors.Is(err, os.ErrPermission):
		return nil, forbidden(dir, err)
	}
	return nil, fmt.Errorf("pebblekv: locking %s: %w", dir, err)
}
