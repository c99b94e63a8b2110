package backup

import (
	"context"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

// A pacer makes a worker rest: rest times as long as it has worked. nil never rests.
//
// A process of its own is slowed down better by its priority (beNice). Inside a daemon that does not
// work: a thread with a low priority holds one of the Go scheduler's few places while it waits for the
// processor, and whatever needs that place waits with it.
type pacer struct {
	rest float64
	last time.Time // when it began to work
}

// pacing prepares the calling goroutine for work beside others.
func pacing(rest float64) *pacer {
	if rest <= 0 {
		beNice()
		return nil
	}
	return &pacer{rest, time.Now()}
}

// pause rests, if the work has taken more than a moment.
func (p *pacer) pause(ctx context.Context) {
	if p == nil {
		return
	}
	worked := time.Since(p.last)
	if worked < time.Millisecond {
		return
	}
	select {
	case <-time.After(time.Duration(p.rest * float64(worked))):
	case <-ctx.Done():
	}
	p.last = time.Now()
}

// reader returns r such that reading it rests.
func (p *pacer) reader(ctx context.Context, r io.Reader) io.Reader {
	if p == nil {
		return r
	}
	return &pacedReader{ctx, r, p}
}

type pacedReader struct {
	ctx context.Context //nolint:containedctx // of one call
	r   io.Reader
	p   *pacer
}

// Read implements io.Reader.
func (r *pacedReader) Read(b []byte) (int, error) {
	r.p.pause(r.ctx)
	return r.r.Read(b)
}

// inParallel calls do for all, from so many workers (0: 2) that rest (pacing), until one fails.
func inParallel[T any](ctx context.Context, all []T, workers int, rest float64, do func(ctx context.Context, item T, pace *pacer) error) error {
	if workers <= 0 {
		workers = 2
	}
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan T)
	g.Go(func() error {
		defer close(work)
		for _, item := range all {
			select {
			case work <- item:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range workers {
		g.Go(func() error {
			pace := pacing(rest)
			for item := range work {
				if err := do(ctx, item, pace); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
