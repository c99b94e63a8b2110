package fdbkv

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"skein.blue/internal/kv"
)

// A monitor knows whether the cluster answers. Every read and commit that succeeds tells it so,
// which costs one atomic load. Its goroutine asks the cluster only when nothing has succeeded
// for a while. The monitor's owner starts it with start and ends it with close.
type monitor struct {
	silence     time.Duration // how long nothing may succeed before the cluster counts as away
	clusterFile string
	log         *slog.Logger
	// ask makes one read, and returns an error if the cluster did not answer within patience.
	ask func(ctx context.Context, patience time.Duration) error

	succeeded atomic.Bool // a read or a commit, since the goroutine last looked
	now       atomic.Pointer[answering]
	stop      context.CancelFunc
	done      chan struct{}
}

// answering is a time during which the cluster answers. ctx ends with it.
type answering struct {
	ctx  context.Context //nolint:containedctx // that of the monitor, which ends the Views under way
	lost context.CancelCauseFunc
	away atomic.Pointer[time.Time] // the last success before ctx ended
}

// start begins to watch a cluster that has just answered.
func (m *monitor) start() {
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan struct{})
	m.begin()
	go m.run(ctx)
}

// close ends the goroutine, and waits for its end.
func (m *monitor) close() {
	m.stop()
	<-m.done
}

// success notes that a read or a commit succeeded.
func (m *monitor) success() {
	if !m.succeeded.Load() {
		m.succeeded.Store(true)
	}
}

// err returns nil while the cluster is believed to answer, else a kv.ErrUnavailable that says
// since when it does not.
func (m *monitor) err() error { return m.errOf(m.now.Load()) }

func (m *monitor) errOf(a *answering) error {
	away := a.away.Load()
	if away == nil {
		return nil
	}
	return fmt.Errorf("the FoundationDB cluster of %s has not answered for %v: is it running (fdbcli --exec status)? %w",
		m.clusterFile, time.Since(*away).Round(time.Second), kv.ErrUnavailable)
}

func (m *monitor) begin() {
	a := &answering{}
	a.ctx, a.lost = context.WithCancelCause(context.Background())
	m.now.Store(a)
}

// run is the goroutine.
func (m *monitor) run(ctx context.Context) {
	defer close(m.done)
	tick := m.silence / 5
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for last := time.Now(); ; timer.Reset(tick) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		answers := m.succeeded.Swap(false)
		if !answers {
			err := m.ask(ctx, max(m.silence-time.Since(last), tick))
			if ctx.Err() != nil {
				return
			}
			answers = m.succeeded.Swap(false) || err == nil
		}
		a := m.now.Load()
		away := a.away.Load() != nil
		silent := time.Since(last).Round(time.Second).String()
		switch {
		case answers:
			if away {
				m.log.Info("the FoundationDB cluster answers again", "after", silent)
				m.begin()
			}
			last = time.Now()
		case !away && time.Since(last) >= m.silence:
			a.away.Store(new(last))
			a.lost(kv.ErrUnavailable)
			m.log.Error("the FoundationDB cluster does not answer: questions are refused, and writes wait, until it does. Ask it on one of its machines: fdbcli --exec status",
				"cluster_file", m.clusterFile, "for", silent)
		}
	}
}
