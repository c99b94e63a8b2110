package fdbkv

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"skein.blue/internal/kv"
)

// A monitor knows whether the cluster answers. Every successful read and commit calls success,
// which costs one atomic load. The monitor's goroutine asks the cluster only if nothing has
// succeeded for a while. Its owner starts it with start and ends it with close.
type monitor struct {
	silence     time.Duration // without a success for so long, the cluster counts as away
	clusterFile string
	log         *slog.Logger
	// ask makes one read. It returns an error if the cluster does not answer within patience.
	ask func(ctx context.Context, patience time.Duration) error

	succeeded atomic.Bool // a read or a commit has, since the goroutine last looked
	now       atomic.Pointer[answering]
	stop      context.CancelFunc
	done      chan struct{}
}

// answering is a period in which the cluster answers. ctx ends with it.
type answering struct {
	ctx  context.Context //nolint:containedctx // the monitor ends it, and so the Views under way
	lost context.CancelCauseFunc
	away atomic.Pointer[time.Time] // the last success before ctx ended
}

// start begins to monitor a cluster that has just answered.
func (m *monitor) start() {
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan struct{})
	m.begin()
	go m.run(ctx)
}

// close ends the goroutine and waits for it.
func (m *monitor) close() {
	m.stop()
	<-m.done
}

// success records a successful read or commit.
func (m *monitor) success() {
	if !m.succeeded.Load() {
		m.succeeded.Store(true)
	}
}

// err returns nil while the cluster answers, else a kv.ErrUnavailable with the duration of the
// outage.
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

// run is the monitor's goroutine.
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
			m.log.Error("the FoundationDB cluster does not answer; queries fail and writes wait until it does; on one of its machines, run fdbcli --exec status",
				"cluster_file", m.clusterFile, "for", silent)
		}
	}
}
