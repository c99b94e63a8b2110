package xrpc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
				q.Leave()
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
		q.Leave()
		synctest.Wait()
		if got := strings.Join(served[:3], " "); got != "busy small other" || len(served) != 10 {
			t.Errorf("served %v", served)
		}
		if q.free != 1 || len(q.waiting) != 0 || len(q.turns) != 0 {
			t.Errorf("left: %+v", q)
		}
	})
}
