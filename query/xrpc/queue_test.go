package xrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/testing/abuse"
)

// Clients take turns: a client with many queries delays only itself.
func TestQueueTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1)
		if err := q.Enter(t.Context(), "busy"); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var served []string
		ask := func(client string) {
			go func() {
				if err := q.Enter(t.Context(), client); err != nil {
					t.Error(err)
				}
				mu.Lock()
				served = append(served, client)
				mu.Unlock()
				q.Leave(client, time.Now())
			}()
			synctest.Wait()
		}
		for range 8 {
			ask("busy")
		}
		ask("small")
		ask("other")
		// One gives up while it waits, and one after its turn has come.
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- q.Enter(ctx, "impatient") }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		q.Leave("busy", time.Now())
		synctest.Wait()
		if got := strings.Join(served[:3], " "); got != "busy small other" || len(served) != 10 {
			t.Errorf("served %v", served)
		}
		if q.free != 1 || len(q.waiting) != 0 || len(q.turns) != 0 {
			t.Errorf("left: %+v", q)
		}
	})
}

// A network whose clients keep the slots busy with long queries does not starve a newcomer: it is next, whatever the length of the queue.
func TestAbuseSlots(t *testing.T) {
	for what, address := range map[string]func(i, n int) string{
		"30 addresses":                       func(i, _ int) string { return fmt.Sprintf("192.0.%d.1/32", i) },
		"a network, each from a new address": func(i, n int) string { return fmt.Sprintf("2001:db8:0:%x::/64", i<<10|n) },
	} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(1)
			ctx, stop := context.WithCancel(t.Context())
			for i := range 30 {
				go func() {
					for n := 0; ctx.Err() == nil && q.Enter(ctx, address(i, n)) == nil; n++ {
						began := time.Now()
						time.Sleep(3 * time.Second)
						q.Leave(address(i, n), began)
					}
				}()
			}
			time.Sleep(200 * time.Second)
			longest, answered := time.Duration(0), 0
			for range 20 {
				began := time.Now()
				within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if q.Enter(within, "198.51.100.1/32") == nil {
					answered++
					longest = max(longest, time.Since(began))
					since := time.Now()
					time.Sleep(10 * time.Millisecond)
					q.Leave("198.51.100.1/32", since)
				}
				cancel()
				time.Sleep(time.Second)
			}
			abuse.Figure(t, "small queries beside long ones of "+what, "%d of 20 had a slot within 10 s, after at most %s", answered, longest)
			if answered != 20 || longest > 3*time.Second {
				t.Errorf("%s: %d of 20 had a slot, after at most %s", what, answered, longest)
			}
			stop()
			time.Sleep(time.Minute) // until the last has left
		})
	}
}
