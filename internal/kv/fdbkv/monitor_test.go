package fdbkv

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/kv"
)

// fakeCluster answers the monitor, unless it is stalled.
type fakeCluster struct {
	stalled atomic.Bool
	asked   atomic.Int64
}

func (c *fakeCluster) ask(ctx context.Context, patience time.Duration) error {
	c.asked.Add(1)
	for end := time.Now().Add(patience); c.stalled.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.New("timed out")
		}
	}
	return nil
}

func watchFake(t *testing.T) (*fakeCluster, *monitor, *strings.Builder) {
	c, log := &fakeCluster{}, &strings.Builder{}
	m := &monitor{silence: 5 * time.Second, clusterFile: "/the.cluster", log: slog.New(slog.NewJSONHandler(log, nil)), ask: c.ask}
	m.start()
	t.Cleanup(m.close)
	return c, m, log
}

// After five silent seconds, the cluster counts as away: within two more seconds, the monitor
// ends the Views under way and logs the outage once. It also logs the cluster's return.
func TestMonitorOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, log := watchFake(t)
		time.Sleep(time.Minute)
		if err := m.err(); err != nil {
			t.Fatal(err)
		}
		underWay := m.now.Load()
		c.stalled.Store(true)
		time.Sleep(4 * time.Second)
		if err := m.err(); err != nil {
			t.Errorf("after four seconds: %v", err)
		}
		time.Sleep(3 * time.Second)
		if err := m.err(); !errors.Is(err, kv.ErrUnavailable) || !regexp.MustCompile(`/the\.cluster has not answered for [78]s`).MatchString(err.Error()) {
			t.Errorf("after seven seconds: %v", err)
		}
		if underWay.ctx.Err() == nil || !errors.Is(m.errOf(underWay), kv.ErrUnavailable) {
			t.Error("the outage did not end what was under way")
		}
		time.Sleep(20 * time.Second)
		c.stalled.Store(false)
		time.Sleep(time.Second) // the monitor's read returns
		if err := m.err(); err != nil {
			t.Errorf("the cluster is back: %v", err)
		}
		time.Sleep(time.Minute)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !regexp.MustCompile(`"level":"ERROR".*does not answer.*"for":"5s"`).MatchString(lines[0]) ||
			!regexp.MustCompile(`answers again","after":"2[78]s"`).MatchString(lines[1]) {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// While ordinary work succeeds, the monitor does not ask, and the cluster does not count as away,
// even if it would not answer the monitor.
func TestSuccessfulWorkReplacesAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, _ := watchFake(t)
		for range 600 {
			m.success()
			time.Sleep(100 * time.Millisecond)
		}
		if n := c.asked.Load(); n != 0 {
			t.Errorf("asked %d times despite successful work", n)
		}
		c.stalled.Store(true)
		for range 30 {
			m.success()
			time.Sleep(3 * time.Second)
			if err := m.err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
