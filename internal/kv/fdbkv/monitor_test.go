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

// fakeCluster answers what the monitor asks, unless it stands still.
type fakeCluster struct {
	still atomic.Bool
	asked atomic.Int64
}

func (c *fakeCluster) ask(ctx context.Context, patience time.Duration) error {
	c.asked.Add(1)
	for end := time.Now().Add(patience); c.still.Load(); time.Sleep(10 * time.Millisecond) {
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

// A cluster that answers nothing for five seconds is away: within two seconds more the monitor
// knows it, ends what is under way, and says it once. It says when the cluster is back.
func TestMonitorOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, log := watchFake(t)
		time.Sleep(time.Minute)
		if err := m.err(); err != nil {
			t.Fatal(err)
		}
		underWay := m.now.Load()
		c.still.Store(true)
		time.Sleep(4 * time.Second)
		if err := m.err(); err != nil {
			t.Errorf("after four seconds: %v", err)
		}
		time.Sleep(3 * time.Second)
		if err := m.err(); !errors.Is(err, kv.ErrUnavailable) || !regexp.MustCompile(`/the\.cluster has not answered for [78]s`).MatchString(err.Error()) {
			t.Errorf("after seven seconds: %v", err)
		}
		if underWay.ctx.Err() == nil || !errors.Is(m.errOf(underWay), kv.ErrUnavailable) {
			t.Error("what was under way goes on")
		}
		time.Sleep(20 * time.Second)
		c.still.Store(false)
		time.Sleep(time.Second) // it is asking
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

// While ordinary work succeeds, the monitor asks nothing, and a cluster that answers ordinary
// work is there, though it does not answer the monitor.
func TestMonitorIsFedByWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, _ := watchFake(t)
		for range 600 {
			m.success()
			time.Sleep(100 * time.Millisecond)
		}
		if n := c.asked.Load(); n != 0 {
			t.Errorf("it asked %d times beside the work", n)
		}
		c.still.Store(true)
		for range 30 {
			m.success()
			time.Sleep(3 * time.Second)
			if err := m.err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
