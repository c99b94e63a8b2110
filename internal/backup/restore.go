package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"skein.blue/internal/backup/target"
	"skein.blue/internal/human"
)

// RestoreOptions say what to restore, and how.
type RestoreOptions struct {
	// Dir is the folder to restore to. It must not exist, be empty, or hold a restore that was
	// interrupted; if that was of another backup, its equal files are used.
	Dir string
	// Manifest is what to restore (Find).
	Manifest *Manifest
	Seal     *Seal // decrypts the parts, if they are encrypted
	// Reuse is a restored folder, or "". Files that it shares with the backup are linked from there
	// if the manifest that it was restored from, Was, says that they are the same.
	Reuse string
	Was   *Manifest
	// Parallel is how many parts are read at a time. 0 means 4.
	Parallel int
	// Progress, if set, is called with the bytes done so far, and of how many.
	Progress func(done, total int64)
}

// unfinished is the file that says that a folder is a restore under way. It holds the manifest.
const unfinished = "skein.restoring"

// restored is the file that says what backup a folder was restored from: it was unfinished.
const restored = "skein.restored"

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

// partial ends the name of a file that is being restored.
const partial = ".partial"

// Unfinished reports whether a folder holds a restore that was interrupted.
func Unfinished(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, unfinished))
	return err == nil
}

// attempts is how often a part is read without getting further, or not fast enough (target.Kept), before Restore gives up, and pause how long it waits after
// the first failure; it doubles each time.
const attempts = 6

var pause = time.Second

// Restore writes the files of a backup. Each is checked against its hash before it gets its name.
// After an interruption it can be called again, and continues. The folder is a store only when
// Restore has returned nil.
func Restore(ctx context.Context, t target.Target, o RestoreOptions) error {
	r := &restorer{o: o, t: t, m: o.Manifest, same: map[string]bool{}}
	if err := r.begin(); err != nil {
		return err
	}
	if err := r.fetch(ctx); err != nil {
		return err
	}
	return r.finish()
}

type restorer struct {
	o    RestoreOptions
	t    target.Target
	m    *Manifest
	same map[string]bool // files to link from Reuse
	done atomic.Int64
}

// begin makes the folder, or finds that it holds the beginning of this restore.
func (r *restorer) begin() error {
	fail := func(err error) error { return fmt.Errorf("restore: %w", err) }
	if err := os.MkdirAll(r.o.Dir, 0o755); err != nil {
		return fail(err)
	}
	b, err := r.m.encode()
	if err != nil {
		return fail(err)
	}
	mark := filepath.Join(r.o.Dir, unfinished)
	switch old, err := os.ReadFile(mark); {
	case err == nil && bytes.Equal(old, b):
		return r.room()
	case err == nil: // of another backup, which a newer one has replaced; equal files are used
		if err := r.removeOthers(); err != nil {
			return fail(err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	default:
		entries, err := os.ReadDir(r.o.Dir)
		if err != nil {
			return fail(err)
		}
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != target.LostFound }) {
			return fmt.Errorf("restore: %w: %s; restore into a folder that does not exist", ErrFolder, r.o.Dir)
		}
	}
	if err := writeDurably(mark, b); err != nil {
		return fail(err)
	}
	return r.room()
}

// removeOthers removes the files that this backup does not have.
func (r *restorer) removeOthers() error {
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		ours := e.Name() == unfinished || e.Name() == target.LostFound || slices.ContainsFunc(r.m.Files, func(f File) bool { return f.Name == e.Name() })
		if !ours {
			err = errors.Join(err, os.Remove(filepath.Join(r.o.Dir, e.Name())))
		}
	}
	return err
}

// room finds the files to link, and checks that there is space for the others.
func (r *restorer) room() error {
	if r.o.Reuse != "" && r.o.Was != nil {
		for i := range r.o.Was.Files {
			f := &r.o.Was.Files[i]
			r.same[f.Name+" "+f.SHA256] = true
		}
	}
	if du, err := vfs.Default.GetDiskUsage(r.o.Dir); err == nil {
		free, need := int64(du.AvailBytes), r.m.Bytes() // disks are smaller
		for i := range r.m.Files {
			f := &r.m.Files[i]
			if info, err := os.Stat(filepath.Join(r.o.Dir, f.Name)); err == nil {
				need -= info.Size()
			} else if r.linked(f) {
				need -= f.Size
			}
		}
		if need > free {
			return fmt.Errorf("restore: %s has %s free, and the rest of the store needs %s", r.o.Dir, human.Bytes(free), human.Bytes(need))
		}
	}
	return nil
}

// linked reports whether a file can be linked: it is a table, which is never changed, and the same as
// in Reuse.
func (r *restorer) linked(f *File) bool {
	return strings.HasSuffix(f.Name, ".sst") && r.same[f.Name+" "+f.SHA256]
}

// fetch restores the files. The marker of Pebble's manifest, without which there is no store, comes
// last; finish depends on more than that, but an older skein does not know unfinished.
func (r *restorer) fetch(ctx context.Context) error {
	files := make([]*File, len(r.m.Files))
	for i := range r.m.Files {
		files[i] = &r.m.Files[i]
	}
	slices.SortStableFunc(files, func(a, b *File) int {
		switch am, bm := strings.HasPrefix(a.Name, "marker."), strings.HasPrefix(b.Name, "marker."); {
		case am == bm:
			return 0
		case am:
			return 1
		}
		return -1
	})
	parallel := r.o.Parallel
	if parallel <= 0 {
		parallel = 4
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := r.file(ctx, f); err != nil {
				return fmt.Errorf("restore: %s (%s of %s): %w", f.Name, f.part(r.m.Sealed), r.t, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (r *restorer) tell(n int64) {
	if done := r.done.Add(n); r.o.Progress != nil {
		r.o.Progress(done, r.m.Bytes())
	}
}

// file restores a file, unless an earlier attempt has.
func (r *restorer) file(ctx context.Context, f *File) error {
	path := filepath.Join(r.o.Dir, f.Name)
	if sum, err := hashOf(ctx, path, f.Size); err == nil && sum == f.SHA256 {
		r.tell(f.Size)
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.linked(f) {
		if err := os.Link(filepath.Join(r.o.Reuse, f.Name), path); err == nil {
			r.tell(f.Size)
			return nil
		}
	}
	w, err := os.OpenFile(path+partial, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	p := &partFile{f: f, w: w, sum: sha256.New(), tell: r.tell}
	wait, began := pause, time.Now()
	for try := 1; ; try++ {
		if err = p.resume(r.m.Sealed); err == nil {
			from := p.at
			if err = r.part(ctx, p); r.m.Sealed == "" && target.Kept(p.at-from, time.Since(began)) {
				try, wait = 1, pause // the next attempt goes on from there
			}
		}
		final := err == nil || ctx.Err() != nil || try == attempts || errors.Is(err, target.ErrNotFound) || errors.Is(err, ErrPart) || errors.Is(err, ErrKey)
		if final {
			break
		}
		began = time.Now() // the wait counts: else a server could break off after each byte, for ever
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait *= 2
	}
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err == nil {
		return os.Rename(path+partial, path)
	}
	if errors.Is(err, target.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrPart, err)
	}
	if errors.Is(err, ErrPart) { // nothing of it is of use
		err = errors.Join(err, os.Remove(path+partial))
	}
	return err
}

// partFile is a file being restored.
type partFile struct {
	f    *File
	w    *os.File
	at   int64 // bytes written and summed
	sum  hash.Hash
	tell func(n int64)
	told int64
}

// show tells how far the file is.
func (p *partFile) show() { p.tell(p.at - p.told); p.told = p.at }

// resume prepares for the next attempt: it sums what an earlier one wrote. An encrypted part begins
// again.
func (p *partFile) resume(sealed string) error {
	p.at = 0
	p.sum.Reset()
	if _, err := p.w.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if sealed == "" {
		n, err := io.Copy(p.sum, io.LimitReader(p.w, p.f.Size))
		if err != nil {
			return err
		}
		p.at = n
	}
	p.show()
	return p.w.Truncate(p.at)
}

// part reads the rest of a part, and checks the whole.
func (r *restorer) part(ctx context.Context, p *partFile) error {
	begun := p.at
	if p.at < p.f.Size || p.at == 0 {
		body, err := r.t.Get(ctx, p.f.part(r.m.Sealed), p.at)
		if err != nil {
			return err
		}
		err = r.copy(ctx, p, body)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	if sum := hex.EncodeToString(p.sum.Sum(nil)); sum != p.f.SHA256 {
		if begun > 0 { // what an earlier attempt left may be the damage
			return errors.Join(errors.New("what an earlier attempt left is damaged"), p.w.Truncate(0))
		}
		return fmt.Errorf("%w: its hash is %s", ErrPart, sum)
	}
	return nil
}

// copy copies a part's body to its file.
func (r *restorer) copy(ctx context.Context, p *partFile, body io.Reader) error {
	raw := &failing{r: io.LimitReader(body, p.f.Stored+1)}
	plain, err := r.o.Seal.decrypt(r.m.Sealed, raw)
	if err != nil {
		if raw.err != nil { // not the part is at fault
			return raw.err
		}
		return err
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := plain.Read(buf)
		if n > 0 {
			if p.at+int64(n) > p.f.Size {
				return fmt.Errorf("%w: it has more than %d bytes", ErrPart, p.f.Size)
			}
			if _, err := p.w.Write(buf[:n]); err != nil {
				return err
			}
			_, _ = p.sum.Write(buf[:n]) // a hash never fails
			p.at += int64(n)
			p.show()
		}
		switch {
		case errors.Is(err, io.EOF) && p.at < p.f.Size:
			err = fmt.Errorf("%w: it has %d bytes of %d", ErrPart, p.at, p.f.Size)
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = ctx.Err()
		case raw.err == nil: // the bytes came, and cannot be decrypted
			err = fmt.Errorf("%w: %w", ErrPart, err)
		}
		if err != nil {
			return err
		}
	}
}

// hashOf returns the hash of a file that has the right size.
func hashOf(ctx context.Context, path string, size int64) (string, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() != size {
		return "", errors.Join(err, fs.ErrNotExist)
	}
	sum, err := hashFile(ctx, path, nil)
	return hex.EncodeToString(sum), err
}

// finish makes the folder a store.
func (r *restorer) finish() error {
	if err := target.SyncFolder(r.o.Dir); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := os.Rename(filepath.Join(r.o.Dir, unfinished), filepath.Join(r.o.Dir, restored)); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := target.SyncFolder(r.o.Dir); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

func writeDurably(name string, b []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close(), target.SyncFolder(filepath.Dir(name)))
}
