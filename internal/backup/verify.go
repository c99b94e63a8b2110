package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// VerifyOptions say how to verify.
type VerifyOptions struct {
	Trust *Trust // nil: signatures are not needed
	// Problem is called for each problem found, from one goroutine at a time.
	Problem func(error)
	// Progress, if set, is called with the bytes read so far, and of how many.
	Progress func(done, total int64)
}

// A Verified says what Verify read.
type Verified struct {
	Backups, Parts int
	Bytes          int64 // of the parts
	Problems       int
}

// needed is a part that backups need.
type needed struct {
	file *File     // one of the files that it is
	in   time.Time // the newest of the backups: the last to be removed
}

// Verify reads all parts of a target's backups and compares them with their hashes. It returns an error
// if it could not do its work; a damaged backup is a problem, and no error. Backups that are removed
// meanwhile (CreateOptions.Keep) are no problem.
func Verify(ctx context.Context, t Target, o VerifyOptions) (v Verified, err error) {
	backups, err := List(ctx, t)
	if err != nil {
		return v, err
	}
	if len(backups) == 0 {
		return v, fmt.Errorf("%w in %s", ErrNone, t)
	}
	var mu sync.Mutex
	problem := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		v.Problems++
		o.Problem(err)
	}
	all := map[string]needed{}
	for _, at := range slices.Backward(backups) {
		m, err := read(ctx, t, at, o.Trust)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrManifest), errors.Is(err, ErrSignature):
			if exists(ctx, t, at) {
				problem(err)
			}
			continue
		case err != nil:
			return v, err
		}
		v.Backups++
		for i := range m.Files {
			f := &m.Files[i]
			if _, ok := all[f.part()]; !ok {
				all[f.part()] = needed{f, at}
				v.Bytes += f.Size
			}
		}
	}
	v.Parts = len(all)
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, p := range all {
		g.Go(func() error {
			err := again(ctx, func() error { return fetch(ctx, t, p.file, io.Discard, nil) })
			switch {
			case err != nil && !errors.Is(err, ErrPart):
				return err
			case err != nil && exists(ctx, t, p.in):
				problem(fmt.Errorf("the backup of %s: %w", p.in.Format(timeForm), err))
			}
			if n := done.Add(p.file.Size); o.Progress != nil {
				o.Progress(n, v.Bytes)
			}
			return nil
		})
	}
	err = g.Wait()
	return v, err
}

// exists reports whether a target has a backup still.
func exists(ctx context.Context, t Target, at time.Time) bool {
	r, err := t.Get(ctx, manifestOf(at))
	if err == nil {
		_ = r.Close() // nothing was read
	}
	return !errors.Is(err, ErrNotFound)
}
