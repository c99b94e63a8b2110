package graph

import "time"

// keyBuffer gathers keys for a MultiGet in one arena.
type keyBuffer struct {
	keys  [][]byte
	arena []byte
}

func (k *keyBuffer) reset() { k.keys, k.arena = k.keys[:0], k.arena[:0] }

func (k *keyBuffer) add(key []byte) {
	start := len(k.arena)
	k.arena = append(k.arena, key...) // if it grows, earlier keys stay in the old array
	k.keys = append(k.keys, k.arena[start:len(k.arena):len(k.arena)])
}

// stopwatch is the time of its last lap.
type stopwatch time.Time

func (s *stopwatch) lap(d *time.Duration) {
	now := time.Now()
	*d += now.Sub(time.Time(*s))
	*s = stopwatch(now)
}
