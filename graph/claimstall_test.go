package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// A connection is one process's connection to a store. It can stall, or report that the store
// does not answer.
type connection struct {
	kv.Store

	mu            sync.Mutex
	reads, writes time.Time // when their stalls end
	away          bool      // View fails at once
}

// stall stalls reads and writes for some time.
func (c *connection) stall(reads, writes time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads, c.writes = time.Now().Add(reads), time.Now().Add(writes)
}

func (c *connection) setAway(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

func (c *connection) View(ctx context.Context, fn func(kv.Reader) error) error {
	c.mu.Lock()
	until, away := c.reads, c.away
	c.mu.Unlock()
	if away {
		return fmt.Errorf("the cluster is away: %w", kv.ErrUnavailable)
	}
	time.Sleep(time.Until(until))
	return c.Store.View(ctx, fn)
}

func (c *connection) Update(ctx context.Context, fn func(kv.Txn) error) error {
	c.mu.Lock()
	until := c.writes
	c.mu.Unlock()
	time.Sleep(time.Until(until))
	return c.Store.Update(ctx, fn)
}

func loggedTo(b *bytes.Buffer, o claimOptions) claimOptions {
	o.Logger = slog.New(slog.NewTextHandler(b, nil))
	return o
}

// bubble runs a test with synthetic time, in which all claims end with the test.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// TestStallDoesNotFenceALiveWriter: while the store stalls, a healthy writer cannot renew its
// heartbeat. It keeps its partitions, whenever the stall begins and whichever writer reaches
// the store first.
func TestStallDoesNotFenceALiveWriter(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} {
		for _, stall := range []time.Duration{3 * time.Second, 12 * time.Second, time.Minute} {
			bubble(t, func(t *testing.T) {
				store := open(memkv.Faults{})
				ours, theirs := &connection{Store: store}, &connection{Store: store}
				live := take(t, theirs, options("live", 0, 4, time.Second))
				time.AfterFunc(after, func() {
					ours.stall(stall, stall)
					theirs.stall(stall+500*time.Millisecond, stall+500*time.Millisecond) // the live writer reaches the store later
				})
				var log bytes.Buffer
				refused(t, ours, loggedTo(&log, options("second", 0, 4, time.Second)), "is written by live since ", "and it is alive")
				if err := checked(t, store, live); err != nil {
					t.Errorf("%v after the start, a stall of %v: %v\n%s", after, stall, err, &log)
				}
				if s := log.String(); strings.Contains(s, "for=4000000000") || !strings.Contains(s, "for=4s") {
					t.Errorf("the log:\n%s", s)
				}
			})
		}
	}
}

// TestStallOnlyDelaysTakingOver: after a stall, a dead writer is taken over four beats later,
// and the log explains the delay.
func TestStallOnlyDelaysTakingOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := open(memkv.Faults{})
		take(t, store, options("gone", 0, 4, 24*time.Hour))
		ours := &connection{Store: store}
		time.AfterFunc(1100*time.Millisecond, func() { ours.stall(12*time.Second, 12*time.Second) })
		var log bytes.Buffer
		begun := time.Now()
		take(t, ours, loggedTo(&log, options("second", 0, 4, time.Second)))
		if took := time.Since(begun); took < 17*time.Second || took > 18*time.Second {
			t.Errorf("it took %v", took)
		}
		if s := log.String(); strings.Count(s, "stood still, and the other writer may be alive: watching it begins again") != 1 || !strings.Contains(s, "stood_still=12") {
			t.Errorf("the log:\n%s", s)
		}
	})
}

// TestStallWhileClaiming: a stall of the write that takes over also restarts the watching,
// because the other writer may have returned.
func TestStallWhileClaiming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := open(memkv.Faults{})
		take(t, store, options("gone", 0, 4, 24*time.Hour))
		ours := &connection{Store: store}
		time.AfterFunc(3900*time.Millisecond, func() { ours.stall(0, 12*time.Second) })
		var log bytes.Buffer
		begun := time.Now()
		take(t, ours, loggedTo(&log, options("second", 0, 4, time.Second)))
		if took := time.Since(begun); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("it took %v\n%s", took, &log)
		}
	})
}

// TestBeatWhileClaiming: a writer that beats between the last look and the write that takes
// over is alive.
func TestBeatWhileClaiming(t *testing.T) {
	store := open(memkv.Faults{})
	old := take(t, store, options("old", 0, 4, time.Hour))
	ours := &racing{store, func() {
		if err := store.Update(t.Context(), func(tx kv.Txn) error {
			for token := range rows(t, store, format.KeyHeartbeat) {
				tx.Set(format.HeartbeatKey([]byte(token)), []byte("now"))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}}
	refused(t, ours, options("second", 0, 4, beat), "is written by old since ", "and it is alive")
	if err := checked(t, store, old); err != nil {
		t.Error(err)
	}
}

// TestTakeAwaitsTheStore: takeClaim waits for a store that does not answer, logs that once, and
// stops with its context.
func TestTakeAwaitsTheStore(t *testing.T) {
	for name, begins := range map[string]time.Duration{"from the beginning": 0, "while it watches": 700 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := open(memkv.Faults{})
				take(t, store, options("gone", 0, 4, 24*time.Hour))
				ours := &connection{Store: store, away: begins == 0}
				time.AfterFunc(begins+time.Millisecond, func() { ours.setAway(true) })
				time.AfterFunc(30*time.Second, func() { ours.setAway(false) })
				var log bytes.Buffer
				begun := time.Now()
				c := take(t, ours, loggedTo(&log, options("second", 0, 4, time.Second)))
				if took := time.Since(begun); took < 34*time.Second || took > 36*time.Second {
					t.Errorf("it took %v", took)
				}
				if err := checked(t, store, c); err != nil {
					t.Error(err)
				}
				if n := strings.Count(log.String(), "the store does not answer; waiting to claim the partitions"); n != 1 {
					t.Errorf("logged %d times:\n%s", n, &log)
				}
				ours.setAway(true)
				why := errors.New("told to stop")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(why) })
				if _, err := takeClaim(ctx, ours, options("third", 0, 4, time.Second)); !errors.Is(err, why) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestClaimLost: a suspended writer is taken over. It learns that within a beat after it continues,
// even with nothing to write, and leaves no heartbeat.
func TestClaimLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := open(memkv.Faults{})
		theirs := &connection{Store: store}
		lost := make(chan error, 1)
		o := options("stopped", 0, 4, time.Second)
		o.Lost = func(err error) { lost <- err }
		take(t, theirs, o)
		theirs.stall(12*time.Second, 12*time.Second)
		begun := time.Now()
		take(t, store, options("second", 2, 3, time.Second))
		err := <-lost
		if took := time.Since(begun); took > 14*time.Second || !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "was taken over by second") {
			t.Errorf("after %v: %v", took, err)
		}
		time.Sleep(10 * time.Second)
		if n := len(rows(t, store, format.KeyHeartbeat)); n != 1 {
			t.Errorf("%d heartbeats", n)
		}
	})
}
