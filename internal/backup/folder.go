package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// folder is a target in a folder. An object is written beside its place, under its name with a
// suffix, and renamed. The file that a killed process leaves is removed with the parts that no backup
// needs.
type folder struct{ root string }

// String implements Target.
func (t *folder) String() string { return t.root }

func (t *folder) path(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

// List implements Target.
func (t *folder) List(ctx context.Context, dir string) (map[string]int64, error) {
	sizes := map[string]int64{}
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
		sizes[filepath.ToSlash(name)] = info.Size()
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing %s: %w", t.path(dir), err)
	}
	return sizes, nil
}

// Get implements Target.
func (t *folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(t.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", t.path(name), ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", t.path(name), err)
	}
	return f, nil
}

// Put implements Target. The object has a temporary name first.
func (t *folder) Put(ctx context.Context, name string, size int64, r io.Reader, onlyNew bool) error {
	to := t.path(name)
	fail := func(err error) error { return fmt.Errorf("writing %s: %w", to, err) }
	if err := makeFolder(filepath.Dir(to)); err != nil {
		return fail(err)
	}
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".")
	if err != nil {
		return fail(err)
	}
	n, err := io.Copy(f, &interruptible{ctx: ctx, r: r})
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, expected %d: %w", n, size, io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if onlyNew { // unlike a rename, a link fails if its new name exists
			err = errors.Join(os.Link(f.Name(), to), os.Remove(f.Name()))
		} else {
			err = os.Rename(f.Name(), to)
		}
	}
	if onlyNew && errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", to, ErrExists)
	} else if err != nil {
		_ = os.Remove(f.Name()) // if it fails, the file is one that a killed process leaves
		return fail(err)
	}
	if err := syncFolder(filepath.Dir(to)); err != nil {
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
	return syncFolder(filepath.Dir(name))
}

// syncFolder makes the names in a folder durable.
func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
