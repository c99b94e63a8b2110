package say

import (
	"fmt"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	var l Limiter
	now := time.Unix(1000, 0)
	allowed := 0
	for range 1000 {
		if held, ok := l.allow("frame", now); ok {
			allowed++
			if held != 0 {
				t.Errorf("%d held back before the first", held)
			}
		}
	}
	if _, ok := l.allow("car", now); !ok {
		t.Error("another key is held back with the first")
	}
	held, ok := l.allow("frame", now.Add(10*time.Second))
	if allowed != 1 || !ok || held != 999 {
		t.Errorf("%d let through at first; ten seconds later %v, %d held back", allowed, ok, held)
	}
	for i := range 10 * maxKeys {
		l.allow(fmt.Sprint(i), now)
		if len(l.keys) > maxKeys {
			t.Fatalf("%d keys in memory", len(l.keys))
		}
	}
}
