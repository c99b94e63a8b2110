package say

import (
	"sync"
	"time"
)

// A Limiter keeps frequent events from filling a log: it lets one message per key through in ten seconds, with the number
// of messages held back. Any goroutine may use it.
type Limiter struct {
	mu   sync.Mutex // guards the fields below
	keys map[string]*state
}

type state struct {
	next time.Time
	held int
}

// maxKeys bounds the number of keys in memory, since strangers may choose them.
const maxKeys = 1000

// Allow reports whether to log a message with this key now, and how many were held back since
// the last one.
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
	held, s.held, s.next = s.held, 0, now.Add(10*time.Second)
	return held, true
}
