package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"skein.blue/internal/backup/target"
)

// VerifyOptions say what to verify.
type VerifyOptions struct {
	// Name is the manifest to verify (Listed); "" means all of the target.
	Name  string
	Trust *Trust // nil: signatures are not needed
	Seal  *Seal
	// Sample is the share of the bytes to read, from 0 to 1, part by part, drawn at random. That
	// the other parts exist, with their sizes, is verified always, except on a web server.
	Sample float64
	// Parallel is how many parts are read at a time. 0 means 2.
	Parallel int
	Rest     float64 // as in CreateOptions
	// Problem is called for each problem found, from one goroutine at a time.
	Problem func(error)
	// Progress, if set, is called with the bytes read so far, and of how many.
	Progress func(done, total int64)
}

// A Verified says what Verify read.
type Verified struct {
	Backups, Parts, Read int // parts of the backups, and those that were read
	Bytes                int64
	Problems             int
	OtherKey             int // parts that are encrypted for another key, and so were not read
}

// Verify reads parts of a target and compares them with their hashes. It returns an error if it
// could not do its work; a damaged backup is a problem, and no error.
func Verify(ctx context.Context, t target.Target, o VerifyOptions) (v Verified, err error) {
	c := &verifier{o: o, t: t, v: &v, parts: map[string]*part{}}
	if err := c.manifests(ctx); err != nil {
		return v, err
	}
	if err := c.present(ctx); err != nil {
		return v, err
	}
	return v, c.read(ctx)
}

// part is a part that manifests need.
type part struct {
	name, sealed string
	file         *File    // one of the files that it is
	in           string   // the first of the manifests that need it
	all          []string // all of them
}

type verifier struct {
	o     VerifyOptions
	t     target.Target
	v     *Verified
	parts map[string]*part
}

func (c *verifier) problem(err error) {
	c.v.Problems++
	c.o.Problem(err)
}

// manifests reads the manifests.
func (c *verifier) manifests(ctx context.Context) error {
	all, err := names(ctx, c.t)
	if err != nil {
		return err
	}
	if c.o.Name != "" {
		all = []string{c.o.Name}
	}
	if len(all) == 0 {
		return fmt.Errorf("%w in %s", ErrNone, c.t)
	}
	for _, name := range all {
		m, err := read(ctx, c.t, name, c.o.Trust)
		switch {
		case err == nil:
		case errors.Is(err, target.ErrNotFound) && !errors.Is(err, ErrSignature) && c.o.Name == "":
			continue // removed meanwhile (--backup-keep)
		case errors.Is(err, ErrManifest) || errors.Is(err, ErrSignature) || errors.Is(err, target.ErrNotFound):
			c.problem(err)
			continue
		default:
			return err
		}
		if m.Sealed != "" && c.o.Sample > 0 && !c.o.Seal.CanRead() {
			_, err := c.o.Seal.decrypt(m.Sealed, nil)
			return err
		}
		c.v.Backups++
		for i := range m.Files {
			f := &m.Files[i]
			p := f.part(m.Sealed)
			if c.parts[p] == nil {
				c.parts[p] = &part{p, m.Sealed, f, name, nil}
			}
			c.parts[p].all = append(c.parts[p].all, name)
		}
	}
	c.v.Parts = len(c.parts)
	return nil
}

// present verifies that the parts exist, where the target can list them.
func (c *verifier) present(ctx context.Context) error {
	has := map[string]int64{}
	err := c.t.List(ctx, parts, func(o target.Object) error { has[o.Name] = o.Size; return nil })
	if errors.Is(err, target.ErrReadOnly) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range c.sorted() {
		switch size, ok := has[p.name]; {
		case !ok && !c.needed(ctx, p):
			delete(c.parts, p.name)
		case !ok:
			c.problem(fmt.Errorf("%w: %s, which is %s of %s, is missing", ErrPart, p.name, p.file.Name, p.in))
			delete(c.parts, p.name)
		case size != p.file.Stored:
			c.problem(fmt.Errorf("%w: %s, which is %s of %s, has %d bytes, not %d", ErrPart, p.name, p.file.Name, p.in, size, p.file.Stored))
			delete(c.parts, p.name)
		}
	}
	return nil
}

// needed reports whether a manifest that needs a part still exists: --backup-keep may have removed
// them meanwhile.
func (c *verifier) needed(ctx context.Context, p *part) bool {
	for _, name := range p.all {
		if r, err := c.t.Get(ctx, name, 0); err == nil {
			_ = r.Close() // nothing was read
			return true
		} else if !errors.Is(err, target.ErrNotFound) {
			return true // and the next read says why
		}
	}
	return false
}

func (c *verifier) sorted() (all []*part) {
	for _, p := range c.parts {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *part) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return all
}

// read reads the parts, or a sample of them, and compares them with their hashes.
func (c *verifier) read(ctx context.Context) error {
	all := c.sorted()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	total := int64(0)
	for _, p := range all {
		total += p.file.Size
	}
	share := int64(float64(total) * min(c.o.Sample, 1))
	if c.o.Sample < 1 {
		n, bytes := 0, int64(0)
		for n < len(all) && bytes < share {
			bytes += all[n].file.Size
			n++
		}
		all, share = all[:n], bytes
	}
	found := make(chan error)
	var done, other atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- inParallel(ctx, all, c.o.Parallel, c.o.Rest, func(ctx context.Context, p *part, pace *pacer) error {
			err := c.one(ctx, p, pace)
			switch {
			case errors.Is(err, errOtherKey):
				other.Add(1)
			case err != nil && !errors.Is(err, ErrPart):
				return err
			case err != nil && c.needed(ctx, p):
				found <- err
			}
			if n := done.Add(p.file.Size); c.o.Progress != nil {
				c.o.Progress(n, share)
			}
			return nil
		})
		close(found)
	}()
	for err := range found {
		c.problem(err)
	}
	c.v.OtherKey = int(other.Load())
	c.v.Read, c.v.Bytes = len(all)-c.v.OtherKey, share
	return <-ended
}

// one reads a part. Damage is an ErrPart.
func (c *verifier) one(ctx context.Context, p *part, pace *pacer) error {
	damaged := func(err error) error {
		return fmt.Errorf("%w: %s, which is %s of %s: %w", ErrPart, p.name, p.file.Name, p.in, err)
	}
	body, err := c.t.Get(ctx, p.name, 0)
	if errors.Is(err, target.ErrNotFound) {
		return damaged(err)
	}
	if err != nil {
		return err
	}
	sum := sha256.New()
	raw := &failing{r: pace.reader(ctx, body)}
	plain, err := c.o.Seal.decrypt(p.sealed, raw)
	n := int64(0)
	if err == nil {
		n, err = io.Copy(sum, io.LimitReader(plain, p.file.Size+1))
	}
	err = errors.Join(err, body.Close())
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case raw.err != nil || ctx.Err() != nil:
		return errors.Join(fmt.Errorf("reading %s of %s: %w", p.name, c.t, raw.err), ctx.Err())
	case err != nil: // it cannot be decrypted
		if errors.Is(err, ErrKey) {
			return err
		}
		return damaged(err)
	case n != p.file.Size:
		return damaged(fmt.Errorf("%d bytes, not %d", n, p.file.Size))
	case got != p.file.SHA256:
		return damaged(fmt.Errorf("its hash is %s", got))
	}
	return nil
}

// failing remembers the error of its reader.
type failing struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (f *failing) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}
