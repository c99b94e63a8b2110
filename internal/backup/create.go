package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/internal/backup/target"
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
	Seal    *Seal   // nil: no encryption
	Signer  *Signer // nil: no signature
	// Keep says which older backups to keep; nil: all of them.
	Keep Retention
	// Check, if set, proves a file that is to be sent. An error fails the backup. It calls pause often.
	Check func(path string, pause func()) error
	// Parallel is how many parts are sent at a time. 0 means 2.
	Parallel int
	// Rest is how many times as long as it works each worker rests, so that others can work; 0 means
	// that the workers' threads have a low priority instead, which is for a process of its own.
	Rest float64
	// Progress, if set, is called with the bytes done so far, and of how many.
	Progress func(done, total int64)
}

// A Report says what Create did.
type Report struct {
	Name    string // of the manifest
	Time    time.Time
	Bytes   int64 // of the backed-up folder
	Sent    int64 // bytes of parts that the target lacked
	Parts   int   // that were sent
	Removed Removed
}

// Create backs a folder up to a target. When it returns nil the backup is complete and durable.
func Create(ctx context.Context, t target.Target, o CreateOptions) (r Report, err error) {
	l, err := acquire(ctx, t, owner())
	if err != nil {
		return r, err
	}
	defer l.release(ctx)
	c := &creator{o: o, t: t}
	if err := c.look(ctx); err != nil {
		return r, err
	}
	if err := c.send(ctx); err != nil {
		return r, err
	}
	if err := l.held(ctx); err != nil { // another writer may have removed parts
		return r, err
	}
	if r.Name, err = c.finish(ctx); err != nil {
		return r, err
	}
	if err := l.held(ctx); err != nil { // this process stood still, and another may have removed parts
		return r, errors.Join(err, t.Delete(ctx, r.Name))
	}
	r.Time, r.Bytes, r.Sent, r.Parts = c.m.Time, c.m.Bytes(), c.sent.Load(), int(c.parts.Load())
	if o.Keep == nil {
		all, err := names(ctx, t)
		if err != nil {
			return r, err
		}
		return r, writeIndex(ctx, t, all)
	}
	if r.Removed, err = retain(ctx, t, l, o.Keep, c.m.Time); err != nil {
		return r, fmt.Errorf("the backup %s is complete, but removing old ones failed: %w", r.Name, err)
	}
	return r, nil
}

// owner returns a name for this run of this process.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// creator is a backup being made.
type creator struct {
	o     CreateOptions
	t     target.Target
	m     Manifest
	known map[string]File  // files of the newest backup, by name
	has   map[string]int64 // the parts of the target, with their sizes
	named map[string]bool  // those that the newest backup names

	total, done, sent, parts atomic.Int64
	mu                       sync.Mutex // guards claimed
	claimed                  map[string]bool
}

// look reads what the folder and the target have.
func (c *creator) look(ctx context.Context) error {
	entries, err := os.ReadDir(c.o.Dir)
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	c.m = Manifest{Version: version, Time: c.o.Time.UTC().Truncate(time.Millisecond), Program: c.o.Program, Store: c.o.Store, Sealed: c.o.Seal.name()}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("backup: %w", err)
		}
		if !info.Mode().IsRegular() || e.Name() == "LOCK" || !fileName.MatchString(e.Name()) {
			continue // locks, and folders
		}
		stored, err := c.o.Seal.stored(info.Size())
		if err != nil {
			return err
		}
		c.m.Files = append(c.m.Files, File{Name: e.Name(), Size: info.Size(), Stored: stored, Modified: info.ModTime().UnixNano()})
		c.total.Add(info.Size())
	}
	if len(c.m.Files) == 0 {
		return fmt.Errorf("backup: %s is empty", c.o.Dir)
	}
	all, err := names(ctx, c.t)
	if err != nil {
		return err
	}
	c.known, c.has, c.named, c.claimed = map[string]File{}, map[string]int64{}, map[string]bool{}, map[string]bool{}
	if len(all) > 0 {
		newest := all[len(all)-1]
		if at, _ := manifestTime(newest); !at.Before(c.m.Time) {
			return fmt.Errorf("backup: the newest backup in %s is of %s, which is not before this one (%s); set this machine's clock, or use another target", c.t, at.UTC().Format(time.RFC3339), c.m.Time.Format(time.RFC3339))
		}
		// If it cannot be read, all is read and sent again.
		if m, err := read(ctx, c.t, newest, nil); err == nil {
			for _, f := range m.Files {
				c.known[f.Name] = f
				c.named[f.part(m.Sealed)] = true
			}
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return c.t.List(ctx, parts, func(o target.Object) error { c.has[o.Name] = o.Size; return nil })
}

// send sends the parts that the target lacks.
func (c *creator) send(ctx context.Context) error {
	files := make([]*File, len(c.m.Files))
	for i := range files {
		files[i] = &c.m.Files[i]
	}
	return inParallel(ctx, files, c.o.Parallel, c.o.Rest, func(ctx context.Context, f *File, pace *pacer) error {
		if err := c.file(ctx, f, pace); err != nil {
			return fmt.Errorf("backup: %s: %w", f.Name, err)
		}
		c.tell(f.Size)
		return nil
	})
}

func (c *creator) tell(n int64) {
	if done := c.done.Add(n); c.o.Progress != nil {
		c.o.Progress(done, c.total.Load())
	}
}

// file finds the hash of a file, and sends its part if the target lacks it. A file that has the
// name, size and time of one in the newest backup is the same: tables are not changed, and their
// names are not used again.
func (c *creator) file(ctx context.Context, f *File, pace *pacer) error {
	path := filepath.Join(c.o.Dir, f.Name)
	if k, ok := c.known[f.Name]; ok && k.Size == f.Size && k.Modified == f.Modified {
		f.SHA256 = k.SHA256
		if c.hasPart(ctx, f, pace) {
			return nil
		}
	}
	if c.o.Check != nil {
		if err := c.o.Check(path, func() { pace.pause(ctx) }); err != nil {
			return err
		}
	}
	sum, err := hashFile(ctx, path, pace)
	if err != nil {
		return err
	}
	f.SHA256 = hex.EncodeToString(sum)
	name := f.part(c.m.Sealed)
	if c.hasPart(ctx, f, pace) || !c.claim(name) {
		return nil
	}
	wait := pause
	for try := 1; ; try++ {
		err = c.put(ctx, f, path, sum, pace)
		if err == nil || ctx.Err() != nil || try == puts || errors.Is(err, errChanged) {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait *= 2
	}
	if err != nil {
		return err
	}
	c.sent.Add(f.Stored)
	c.parts.Add(1)
	return nil
}

// puts is how often a part is sent before the backup fails.
const puts = 4

// errChanged is returned for a file that was changed while it was read.
var errChanged = errors.New("the file was changed while it was read")

// put sends the part of a file.
func (c *creator) put(ctx context.Context, f *File, path string, sum []byte, pace *pacer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	again := sha256.New()
	body := c.o.Seal.encrypt(io.TeeReader(pace.reader(ctx, file), again))
	err = c.t.Put(ctx, f.part(c.m.Sealed), f.Stored, body)
	if err = errors.Join(err, body.Close(), file.Close()); err != nil {
		return err
	}
	if !bytes.Equal(again.Sum(nil), sum) {
		return errors.Join(errChanged, c.t.Delete(ctx, f.part(c.m.Sealed)))
	}
	return nil
}

// hasPart reports whether the target has the part of a file. A part that the newest backup does not
// name was left by an older backup, or by one that was cut off: it is read back, because a server
// that was killed may list an object that it does not have whole.
func (c *creator) hasPart(ctx context.Context, f *File, pace *pacer) bool {
	name := f.part(c.m.Sealed)
	if size, ok := c.has[name]; !ok || size != f.Stored {
		return false
	}
	if c.named[name] {
		return true
	}
	v := &verifier{o: VerifyOptions{Seal: c.o.Seal}, t: c.t}
	return v.one(ctx, &part{name: name, sealed: c.m.Sealed, file: f}, pace) == nil
}

// claim reports whether the caller is the first to send a part: files may be equal.
func (c *creator) claim(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claimed[name] {
		return false
	}
	c.claimed[name] = true
	return true
}

// hashFile returns the SHA-256 of a file.
func hashFile(ctx context.Context, path string, pace *pacer) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		_, _ = sum.Write(buf[:n]) // a hash never fails
		pace.pause(ctx)
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return sum.Sum(nil), f.Close()
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}

// finish writes the manifest, after its signature.
func (c *creator) finish(ctx context.Context) (name string, err error) {
	b, err := c.m.encode()
	if err != nil {
		return "", err
	}
	if _, err := decodeManifest(b); err != nil { // nobody could restore it
		return "", fmt.Errorf("backup: %w", err)
	}
	name = manifestName(c.m.Time)
	if c.o.Signer != nil {
		if err := put(ctx, c.t, name+signature, c.o.Signer.sign(name, b)); err != nil {
			return "", err
		}
	}
	return name, put(ctx, c.t, name, b)
}

// writeIndex writes the list of the manifests.
func writeIndex(ctx context.Context, t target.Target, all []string) error {
	b, err := json.MarshalIndent(index{all}, "", " ")
	if err != nil {
		return fmt.Errorf("the list of backups: %w", err)
	}
	return put(ctx, t, indexName, append(b, '\n'))
}

func put(ctx context.Context, t target.Target, name string, b []byte) error {
	return t.Put(ctx, name, int64(len(b)), bytes.NewReader(b))
}
