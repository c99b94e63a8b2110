package app

import (
	"context"
	"runtime/pprof"
	"sync"
)

// tasks are the goroutines of a daemon. Serve starts each of them, by name, and returns when
// all have ended. A goroutine profile (/debug/pprof/goroutine?debug=1) shows the names.
type tasks struct {
	ctx  context.Context //nolint:containedctx // all tasks end with it
	stop context.CancelCauseFunc
	wg   sync.WaitGroup
}

func newTasks(ctx context.Context) *tasks {
	t := new(tasks)
	t.ctx, t.stop = context.WithCancelCause(ctx)
	return t
}

// run starts a task. Its context ends when the daemon stops; an error stops the daemon.
func (t *tasks) run(name string, task func(ctx context.Context) error) {
	t.wg.Go(func() {
		pprof.Do(t.ctx, pprof.Labels("task", name), func(ctx context.Context) {
			if err := task(ctx); err != nil {
				t.stop(err)
			}
		})
	})
}

// end stops all tasks and waits for them.
func (t *tasks) end() {
	t.stop(nil)
	t.wg.Wait()
}
