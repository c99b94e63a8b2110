package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// folder is a target in a folder. An object is written under incoming and renamed.
type folder struct{ root string }

// incoming holds the objects that are being written. Tidy removes the files of killed processes
// after a day.
const (
	incoming    = "incoming"
	incomingFor = 24 * time.Hour
)

// String implements Target.
func (t *folder) String() string { return t.root }

func (t *folder) path(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

// List implements Target.
func (t *folder) List(ctx context.Context, dir string, each func(Object) error) error {
	err := filepath.WalkDir(t.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(t.root, path)
		if err != nil {
			return err
		}
		return each(Object{filepath.ToSlash(name), info.Size(), info.ModTime()})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", t.path(dir), err)
	}
	return nil
}

// Get implements Target.
func (t *folder) Get(_ context.Context, name string, from int64) (io.ReadCloser, error) {
	f, err := os.Open(t.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", t.path(name), ErrNotFound)
	}
	if err == nil && from > 0 {
		if _, err = f.Seek(from, io.SeekStart); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.path(name), err)
	}
	return f, nil
}

// Put implements Target.
func (t *folder) Put(ctx context.Context, name string, size int64, r io.Reader) error {
	return t.write(ctx, name, size, r, os.Rename)
}

// Claim implements Target. Unlike a rename, a link fails if its new name exists.
func (t *folder) Claim(ctx context.Context, name string, b []byte) error {
	err := t.write(ctx, name, int64(len(b)), strings.NewReader(string(b)), func(from, to string) error {
		return errors.Join(os.Link(from, to), os.Remove(from))
	})
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", t.path(name), ErrExists)
	}
	return err
}

// write writes an object under a temporary name, and calls place to give it its own.
func (t *folder) write(ctx context.Context, name string, size int64, r io.Reader, place func(from, to string) error) error {
	to := t.path(name)
	fail := func(err error) error { return fmt.Errorf("writing %s: %w", to, err) }
	if err := errors.Join(makeFolder(t.path(incoming)), makeFolder(filepath.Dir(to))); err != nil {
		return fail(err)
	}
	f, err := os.CreateTemp(t.path(incoming), "*")
	if err != nil {
		return fail(err)
	}
	n, err := io.Copy(f, &interruptible{ctx, r})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, expected %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = place(f.Name(), to)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // if it fails, Tidy removes the file
		return fail(err)
	}
	if err := SyncFolder(filepath.Dir(to)); err != nil {
		return fail(err)
	}
	return nil
}

// Delete implements Target.
func (t *folder) Delete(_ context.Context, name string) error {
	if err := os.Remove(t.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting %s: %w", t.path(name), err)
	}
	return nil
}

// Tidy removes what killed processes left.
func (t *folder) Tidy(ctx context.Context) error {
	return t.List(ctx, incoming, func(o Object) error {
		if time.Since(o.Modified) < incomingFor {
			return nil
		}
		return t.Delete(ctx, o.Name)
	})
}

// makeFolder makes a folder and its parents, and syncs the name of each new one.
func makeFolder(name string) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if parent := filepath.Dir(name); parent != name {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncFolder(filepath.Dir(name))
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// interruptible is a reader that fails when ctx ends.
type interruptible struct {
	ctx context.Context //nolint:containedctx // of one call
	r   io.Reader
}

// Read implements io.Reader.
func (i *interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(b)
}
