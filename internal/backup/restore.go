package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/say"
)

// RestoreOptions say what to restore, and where to.
type RestoreOptions struct {
	// Dir is the folder to restore to. It must not exist, be empty, or hold a restore that was
	// interrupted; if that was of another backup, its equal files are used.
	Dir string
	// Manifest is what to restore (Find).
	Manifest *Manifest
	// Progress, if set, is called with the bytes done so far, and of how many.
	Progress func(done, total int64)
}

const (
	// unfinished is the file that says that a folder is a restore under way. It holds the manifest.
	unfinished = "skein.restoring"
	// restored is the file that says what backup a folder was restored from: it was unfinished.
	restored = "skein.restored"
	// partial ends the name of a file that is being restored.
	partial = ".partial"
	// lostFound is a folder that some file systems have at their root. A folder that has nothing else
	// is empty.
	lostFound = "lost+found"
)

// workers is how many parts are read at a time.
const workers = 4

// Restored returns the manifest of the backup that a folder was restored from. It is an ErrNone if
// the folder is not the result of a Restore.
func Restored(dir string) (*Manifest, error) {
	b, err := os.ReadFile(filepath.Join(dir, restored))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w was restored to %s", ErrNone, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what %s was restored from: %w", dir, err)
	}
	return decodeManifest(b)
}

// Unfinished reports whether a folder holds a restore that was interrupted.
func Unfinished(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, unfinished))
	return err == nil
}

// Restore writes the files of a backup. Each is checked against its hash before it gets its name.
// After an interruption it can be called again, and continues. The folder is a store only when
// Restore has returned nil. Meanwhile it is locked, as a store is.
func Restore(ctx context.Context, t Target, o RestoreOptions) (err error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	lock, err := pebblekv.Lock(o.Dir)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	r := &restorer{RestoreOptions: o, t: t}
	for _, step := range []func() error{r.begin, r.room, func() error { return r.fetch(ctx) }, r.finish} {
		if err := step(); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}

type restorer struct {
	RestoreOptions

	t    Target
	done atomic.Int64
}

// begin marks an empty folder, or finds that it holds the beginning of a restore. Of that, the files that
// this backup lacks are removed.
func (r *restorer) begin() error {
	b, err := r.Manifest.encode()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lostFound || e.Name() == "LOCK" })
	mark := filepath.Join(r.Dir, unfinished)
	switch old, err := os.ReadFile(mark); {
	case err == nil && bytes.Equal(old, b):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil && len(entries) > 0:
		return fmt.Errorf("%w: %s; restore into a folder that does not exist", ErrFolder, r.Dir)
	}
	for _, e := range entries {
		if e.Name() == unfinished || slices.ContainsFunc(r.Manifest.Files, func(f File) bool { return f.Name == e.Name() }) {
			continue
		}
		if err := os.Remove(filepath.Join(r.Dir, e.Name())); err != nil {
			return err
		}
	}
	f, err := os.Create(mark)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close(), syncFolder(r.Dir))
}

// room checks that there is space for the files.
func (r *restorer) room() error {
	du, err := vfs.Default.GetDiskUsage(r.Dir)
	if err != nil {
		return nil //nolint:nilerr // then the disk will say so
	}
	free, need := int64(du.AvailBytes), r.Manifest.Bytes()
	for i := range r.Manifest.Files {
		if info, err := os.Stat(filepath.Join(r.Dir, r.Manifest.Files[i].Name)); err == nil {
			need -= info.Size()
		}
	}
	if need > free {
		return fmt.Errorf("%s has %s free, and the rest of the store needs %s", r.Dir, say.Bytes(free), say.Bytes(need))
	}
	return nil
}

// fetch restores the files.
func (r *restorer) fetch(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range r.Manifest.Files {
		f := &r.Manifest.Files[i]
		g.Go(func() error {
			if err := r.file(ctx, f); err != nil {
				return fmt.Errorf("%s (%s of %s): %w", f.Name, f.part(), r.t, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *restorer) tell(n int64) {
	if done := r.done.Add(n); r.Progress != nil {
		r.Progress(done, r.Manifest.Bytes())
	}
}

// file restores a file, unless an earlier attempt has.
func (r *restorer) file(ctx context.Context, f *File) error {
	path := filepath.Join(r.Dir, f.Name)
	if info, err := os.Stat(path); err == nil && info.Size() == f.Size {
		if sum, err := sumFile(ctx, path, nil); err == nil && sum == f.SHA256 {
			r.tell(f.Size)
			return nil
		}
	}
	if err := again(ctx, func() error { return r.write(ctx, f, path+partial) }); err != nil {
		return errors.Join(err, os.Remove(path+partial))
	}
	return os.Rename(path+partial, path)
}

// write writes a file once.
func (r *restorer) write(ctx context.Context, f *File, path string) error {
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	told := int64(0)
	err = fetch(ctx, r.t, f, w, func(n int) { r.tell(int64(n)); told += int64(n) })
	if err != nil {
		r.tell(-told)
	} else {
		err = w.Sync()
	}
	return errors.Join(err, w.Close())
}

// finish makes the folder a store.
func (r *restorer) finish() error {
	if err := syncFolder(r.Dir); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(r.Dir, unfinished), filepath.Join(r.Dir, restored)); err != nil {
		return err
	}
	return syncFolder(r.Dir)
}

// fetch reads the part of a file into w, and compares it with its size and hash. Damage is an ErrPart;
// other errors may pass. It calls each, if it is set, after each read of some bytes.
func fetch(ctx context.Context, t Target, f *File, w io.Writer, each func(n int)) error {
	damaged := func(what string, of ...any) error {
		return fmt.Errorf("%w: %s, which is %s: %s", ErrPart, f.part(), f.Name, fmt.Sprintf(what, of...))
	}
	body, err := t.Get(ctx, f.part())
	if errors.Is(err, ErrNotFound) {
		return damaged("%v", err)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	most := io.LimitReader(body, f.Size+1)
	n, err := io.CopyBuffer(io.MultiWriter(sum, w), &interruptible{ctx, most, each}, make([]byte, 256<<10))
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("reading %s of %s: %w", f.part(), t, err)
	}
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case n > f.Size:
		return damaged("it has more than %d bytes", f.Size)
	case n < f.Size:
		return damaged("it has %d bytes of %d", n, f.Size)
	case got != f.SHA256:
		return damaged("its hash is %s", got)
	}
	return nil
}
