package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"aead.dev/minisign"
	"golang.org/x/sync/errgroup"

	"skein.blue/internal/outward"
)

// CreateOptions say what to back up, and how.
type CreateOptions struct {
	// Dir is the folder to back up. Nobody may change it meanwhile.
	Dir string
	// Time is when Dir was made.
	Time time.Time
	// Store describes it, and Program the program that makes the backup.
	Store   Summary
	Program string
	Signer  *Signer // nil: no signature
	// Keep is how many backups to keep, with this one; 0: all of them.
	Keep int
	// Check, if set, proves a file that is to be sent. An error fails the backup.
	Check func(path string) error
	// Gently says that others need the processor: one file at a time, with rests that are twice as long
	// as the work.
	Gently bool
	// Progress, if set, is called with the bytes done so far, and of how many.
	Progress func(done, total int64)
}

// A Report says what Create did.
type Report struct {
	Time  time.Time // of the backup: its name
	Bytes int64     // of the backed-up folder
	Sent  int64     // bytes of parts that the target lacked
	Parts int       // that were sent
	// Removed is how many older backups were removed, and Freed the bytes of the parts that no backup
	// needs any more.
	Removed int
	Freed   int64
}

// errChanged is returned for a file that was changed while it was read.
var errChanged = errors.New("the file was changed while it was read")

// Create backs a folder up to a target. When it returns nil the backup is complete and durable.
func Create(ctx context.Context, t Target, o CreateOptions) (r Report, err error) {
	l, err := acquire(ctx, t)
	if err != nil {
		return r, err
	}
	defer l.release(ctx)
	c := &creator{o: o, t: t}
	for _, step := range []func(context.Context) error{c.look, c.send, l.held, c.finish} { // held: another writer may have removed parts
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	if err := l.held(ctx); err != nil { // this process stood still, and another may have removed parts
		return r, errors.Join(err, t.Delete(ctx, manifestOf(c.m.Time)))
	}
	r.Time, r.Bytes, r.Sent, r.Parts = c.m.Time, c.m.Bytes(), c.sent.Load(), int(c.parts.Load())
	if r.Removed, r.Freed, err = retain(ctx, t, l, o.Keep); err != nil {
		return r, fmt.Errorf("the backup of %s is complete, but the list of backups is not, or old ones are not removed: %w", r.Time.Format(time.RFC3339), err)
	}
	return r, nil
}

// creator is a backup being made.
type creator struct {
	o     CreateOptions
	t     Target
	m     Manifest
	known map[string]File  // files of the newest backup, by name
	has   map[string]int64 // the parts of the target, with their sizes
	named map[string]bool  // those that the newest backup names

	done, sent, parts atomic.Int64
}

// look reads what the folder and the target have.
func (c *creator) look(ctx context.Context) error {
	entries, err := os.ReadDir(c.o.Dir) // sorted, as the files of a manifest
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	c.m = Manifest{Version: version, Time: c.o.Time.UTC().Truncate(time.Millisecond), Program: c.o.Program, Store: c.o.Store}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("backup: %w", err)
		}
		if info.Mode().IsRegular() && e.Name() != "LOCK" && fileName.MatchString(e.Name()) { // no locks, and no folders
			c.m.Files = append(c.m.Files, File{Name: e.Name(), Size: info.Size(), Modified: info.ModTime().UnixNano()})
		}
	}
	if len(c.m.Files) == 0 {
		return fmt.Errorf("backup: %s is empty", c.o.Dir)
	}
	backups, err := List(ctx, c.t)
	if err != nil {
		return err
	}
	c.known, c.named = map[string]File{}, map[string]bool{}
	if len(backups) > 0 {
		newest := backups[len(backups)-1]
		if !newest.Before(c.m.Time) {
			return fmt.Errorf("backup: the newest backup in %s is of %s, which is not before this one (%s); set this machine's clock, or, if the newest backup's time is wrong, delete its %s", c.t, newest.Format(time.RFC3339), c.m.Time.Format(time.RFC3339), manifestOf(newest))
		}
		var own *Trust
		if c.o.Signer != nil { // it would sign the hashes of others who can write to the target
			key, _ := c.o.Signer.Public().(Trust)
			own = &key
		}
		// If it cannot be used, all files are read again.
		if m, err := read(ctx, c.t, newest, own); err == nil {
			for _, f := range m.Files {
				c.known[f.Name] = f
				c.named[f.part()] = true
			}
		}
	}
	c.has, err = c.t.List(ctx, parts)
	return err
}

// send sends the parts that the target lacks.
func (c *creator) send(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	if c.o.Gently {
		g.SetLimit(1)
	}
	total := c.m.Bytes()
	for i := range c.m.Files {
		f := &c.m.Files[i]
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.file(ctx, f); err != nil {
				return fmt.Errorf("backup: %s: %w", f.Name, err)
			}
			if done := c.done.Add(f.Size); c.o.Progress != nil {
				c.o.Progress(done, total)
			}
			return nil
		})
	}
	return g.Wait()
}

// file finds the hash of a file, and sends its part if the target lacks it. A file that has the
// name, size and time of one in the newest backup is the same: tables are not changed, and their
// names are not used again.
func (c *creator) file(ctx context.Context, f *File) error {
	path := filepath.Join(c.o.Dir, f.Name)
	if k, ok := c.known[f.Name]; ok && k.Size == f.Size && k.Modified == f.Modified {
		f.SHA256 = k.SHA256
		if c.hasPart(ctx, f) {
			return nil
		}
	}
	pause := c.pauses(ctx)
	if c.o.Check != nil {
		if err := c.o.Check(path); err != nil {
			return err
		}
		pause(0)
	}
	var err error
	if f.SHA256, err = sumFile(ctx, path, pause); err != nil {
		return err
	}
	if c.hasPart(ctx, f) {
		return nil
	}
	if err := again(ctx, func() error { return c.put(ctx, f, path) }); err != nil {
		return err
	}
	c.sent.Add(f.Size)
	c.parts.Add(1)
	return nil
}

// put sends the part of a file.
func (c *creator) put(ctx context.Context, f *File, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	sum := sha256.New()
	body := io.TeeReader(&interruptible{ctx, file, c.pauses(ctx)}, sum)
	if err := errors.Join(c.t.Put(ctx, f.part(), f.Size, body, false), file.Close()); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return errors.Join(errChanged, c.t.Delete(ctx, f.part()))
	}
	return nil
}

// hasPart reports whether the target has the part of a file. A part that the newest backup does not
// name was left by an older backup, or by one that was cut off: it is read back, because a server
// that was killed may list an object that it does not have whole.
func (c *creator) hasPart(ctx context.Context, f *File) bool {
	if size, ok := c.has[f.part()]; !ok || size != f.Size {
		return false
	}
	return c.named[f.part()] || fetch(ctx, c.t, f, io.Discard, c.pauses(ctx)) == nil
}

// pauses returns a function that one goroutine calls often while it works. It rests, if others need
// the processor.
func (c *creator) pauses(ctx context.Context) func(int) {
	last := time.Now()
	return func(int) {
		if worked := time.Since(last); c.o.Gently && worked > time.Millisecond {
			_ = outward.Wait(ctx, 2*worked) // the next read sees that ctx has ended
			last = time.Now()
		}
	}
}

// sumFile returns the SHA-256 of a file, in hexadecimal.
func sumFile(ctx context.Context, path string, each func(n int)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.CopyBuffer(sum, &interruptible{ctx, f, each}, make([]byte, 256<<10))
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Close())
}

// finish writes the manifest, after its signature.
func (c *creator) finish(ctx context.Context) error {
	b, err := c.m.encode()
	if err != nil {
		return err
	}
	if _, err := decodeManifest(b); err != nil { // nobody could restore it
		return fmt.Errorf("backup: %w", err)
	}
	name := manifestOf(c.m.Time)
	if c.o.Signer != nil {
		sig := minisign.SignWithComments(*c.o.Signer, b, name, "signature of a skein backup") // the first is a trusted comment
		if err := put(ctx, c.t, name+signature, sig); err != nil {
			return err
		}
	}
	return put(ctx, c.t, name, b)
}

// retain removes all but the newest backups, and what these do not need; with keep 0, it removes nothing.
// The index is written first, then manifests go, then parts, so that nothing names what is not there.
// Nothing is removed while any manifest that stays cannot be read.
func retain(ctx context.Context, t Target, l *lock, keep int) (removed int, freed int64, err error) {
	backups, err := List(ctx, t)
	if err != nil {
		return 0, 0, err
	}
	if keep == 0 {
		return 0, 0, writeIndex(ctx, t, backups)
	}
	removed = max(len(backups)-keep, 0)
	needed := map[string]bool{}
	for _, at := range backups[removed:] {
		m, err := read(ctx, t, at, nil)
		if err != nil {
			return 0, 0, fmt.Errorf("nothing is removed, because a backup cannot be read: %w", err)
		}
		needed[manifestOf(at)], needed[manifestOf(at)+signature] = true, true
		for i := range m.Files {
			needed[m.Files[i].part()] = true
		}
	}
	if err := writeIndex(ctx, t, backups[removed:]); err != nil {
		return 0, 0, err
	}
	if _, err := sweep(ctx, t, l, manifests, needed); err != nil {
		return 0, 0, err
	}
	freed, err = sweep(ctx, t, l, parts, needed)
	return removed, freed, err
}

// ours matches the beginnings of the names of all objects that sweep may remove: a bucket may be others', too.
var ours = regexp.MustCompile(`^(manifests/\d{8}T\d{6}\.\d{3}Z\.json|parts/[0-9a-f]{2}/[0-9a-f]{64})`)

// sweep removes the objects of a folder that are not needed, and returns their bytes.
func sweep(ctx context.Context, t Target, l *lock, folder string, needed map[string]bool) (freed int64, err error) {
	all, err := t.List(ctx, folder)
	if err != nil {
		return 0, err
	}
	if err := l.held(ctx); err != nil {
		return 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if needed[name] || !ours.MatchString(name) {
			continue
		}
		if err := l.current(); err != nil {
			return freed, err
		}
		if err := t.Delete(ctx, name); err != nil {
			return freed, err
		}
		freed += all[name]
	}
	return freed, nil
}
