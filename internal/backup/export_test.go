package backup

import "time"

// SetPause sets how long Restore waits after a failure, until the returned function is called.
func SetPause(d time.Duration) (restore func()) {
	was := pause
	pause = d
	return func() { pause = was }
}

// Keeps is Retention.keeps.
func Keeps(r Retention, times []time.Time, now time.Time) []bool { return r.keeps(times, now) }
