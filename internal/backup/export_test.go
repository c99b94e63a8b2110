package backup

import (
	"time"

	"filippo.io/age"
)

// SetPause sets how long Restore waits after a failure, until the returned function is called.
func SetPause(d time.Duration) (restore func()) {
	was := pause
	pause = d
	return func() { pause = was }
}

// SetLockFor sets how long a lock lasts, until the returned function is called.
func SetLockFor(d time.Duration) (restore func()) {
	was := lockFor
	lockFor = d
	return func() { lockFor = was }
}

// Keeps is Retention.keeps.
func Keeps(r Retention, times []time.Time, now time.Time) []bool { return r.keeps(times, now) }

// Both returns a Seal for the keys of both.
func Both(a, b *Seal) *Seal {
	return &Seal{append(append([]age.Recipient(nil), a.to...), b.to...), append(append([]age.Identity(nil), a.with...), b.with...)}
}
