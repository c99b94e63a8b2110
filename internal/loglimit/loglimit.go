// Package loglimit keeps what happens often from filling a log: of messages with
// one key, one is let through in an interval, and says how many were held back. It
// does not log by itself.
package loglimit

import (
	"sync"
	"time"
)

// A Limiter lets one message of a key through in Every. The zero Limiter has an
// interval of ten seconds. It may be used from any goroutine.
type Limiter struct {
	// Every is the interval. Set it before the first use.
	Every time.Duration

	mu   sync.Mutex
	keys map[string]*state
}

type state struct {
	next time.Time
	held int
}

// maxKeys bounds the keys that are remembered: whoever makes them up must not
// take the memory.
const maxKeys = 1000

// Allow reports whether a message of this key is to be logged now, and how many
// of its key were not since the last one that was.
func (l *Limiter) Allow(key string) (held int, ok bool) { return l.allow(key, time.Now()) }

func (l *Limiter) allow(key string, now time.Time) (held int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.keys[key]
	if s == nil {
		if l.keys == nil || len(l.keys) >= maxKeys {
			l.keys = map[string]*state{}
		}
		s = &state{}
		l.keys[key] = s
	}
	if now.Before(s.next) {
		s.held++
		return 0, false
	}
	every := l.Every
	if every <= 0 {
		every = 10 * time.Second
	}
	held, s.held, s.next = s.held, 0, now.Add(every)
	return held, true
}
