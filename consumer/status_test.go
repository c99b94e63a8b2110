package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/consumer"
)

// Unknown values are absent. On an idle stream without backlog the lag does not
// grow, however old the last event is, as long as the relay is alive. A message that is being verified is backlog.
func TestStatus(t *testing.T) {
	t.Parallel()
	var quiet atomic.Bool
	url, _ := websocketServer(t, func(_ int64, conn *websocket.Conn) {
		for !quiet.Load() {
			time.Sleep(time.Millisecond)
		}
		for seq := range int64(5) {
			_ = conn.WriteMessage(websocket.BinaryMessage, follow(100+seq, "a")) // of the year 2023
		}
		_, _, _ = conn.NextReader()
	})
	g, _ := open(t)
	s := &slow{read: make(chan struct{}), turn: make(chan struct{}, 1), join: func() {}}
	reg := prometheus.NewRegistry()
	var c *consumer.Consumer
	zero := int64(0)
	c, err := consumer.New(g, consumer.Options{
		Relay: url, Cursor: &zero, MinBackoff: time.Millisecond, Watchdog: 2 * time.Second,
		Verifier: s,
		Metrics:  consumer.NewMetrics(reg, func() consumer.Status { return c.Status() }),
	})
	must(t, err)
	present := func(name string) bool {
		n, err := testutil.GatherAndCount(reg, name)
		return err == nil && n > 0
	}
	if s := c.Status(); s.State != consumer.Connecting || s.HasLag || s.Cursor != 0 || present("skein_consumer_lag_seconds") || present("skein_consumer_cursor") {
		t.Errorf("before the start: %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	await := func(what string, ok func(consumer.Status) bool) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			if s := c.Status(); ok(s) {
				return
			} else if time.Since(began) > 10*time.Second {
				t.Fatalf("never %s: %+v", what, s)
			}
		}
	}
	await("connected", func(s consumer.Status) bool { return s.State == consumer.Live && !s.HasLag })
	quiet.Store(true)
	for range 4 {
		s.read <- struct{}{}
	}
	await("catching up", func(s consumer.Status) bool {
		return s.State == consumer.CatchingUp && s.Lag > 365*24*time.Hour && s.Cursor == 103
	})
	time.Sleep(3 * time.Second)
	if s := c.Status(); s.State != consumer.CatchingUp {
		t.Errorf("while a message is being verified: %+v", s)
	}
	close(s.read)
	await("caught up", func(s consumer.Status) bool { return s.State == consumer.Live && s.Lag < catchingUp })
	for range 20 { // pongs come every quarter of a second
		if s := c.Status(); s.Lag > 2*time.Second {
			t.Errorf("the lag of an idle stream grows: %+v", s)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !present("skein_consumer_lag_seconds") || !present("skein_consumer_cursor") {
		t.Error("metrics are missing")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
