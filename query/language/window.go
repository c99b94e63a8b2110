package language

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Window is a span of time: the microseconds since 1970 in [From, To). The zero Window is all of time, and
// includes records without a time, too.
type Window struct{ From, To int64 }

// All reports whether w does not limit anything.
func (w Window) All() bool { return w == Window{} }

// ParseTime parses a time: RFC 3339, a date (midnight UTC), or an age before now, such as
// 24h, 90m or 7d. isAge reports that s is an age.
func ParseTime(s string, now time.Time) (t time.Time, isAge bool, err error) {
	now = now.Truncate(time.Microsecond) // the precision of cursors, so that all pages agree
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, false, nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, false, nil
	}
	if age, ok := ParseAge(s); ok {
		return now.Add(-age), true, nil
	}
	return t, false, fmt.Errorf("%q is not a time; write a time such as 2026-11-22T06:00:00Z, a date such as 2026-11-22, or an age such as 24h or 7d", Brief(s))
}

// ParseAge parses an age: a number of days or weeks, or a duration of h, m, s and ms, as in time.ParseDuration.
func ParseAge(s string) (age time.Duration, ok bool) {
	if n := len(s); n > 1 {
		if each := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[s[n-1]]; each > 0 {
			if count, err := strconv.ParseUint(s[:n-1], 10, 16); err == nil {
				return time.Duration(min(count, uint64(maxAge/each))) * each, true
			}
		}
	}
	age, err := time.ParseDuration(s)
	return age, err == nil && age >= 0 && strings.Trim(s, "0123456789.hms") == ""
}

// maxAge bounds an age in days or weeks to a hundred years, so that no time.Duration overflows.
const maxAge = 36525 * 24 * time.Hour

// FirstMicro returns t in microseconds since 1970, rounded up: the first whole microsecond,
// as record keys count them, that is not before t.
func FirstMicro(t time.Time) int64 {
	micro := t.UnixMicro() // rounds down, also before 1970
	if t.Nanosecond()%int(time.Microsecond) != 0 {
		micro++
	}
	return micro
}

// EndSince returns the end, in microseconds, of a window without one that begins at an age, or at a time.
func EndSince(isAge bool, now time.Time) int64 {
	if isAge {
		return LatestAt(now) + 1
	}
	return math.MaxInt64
}

// ParseWindow parses the times since and until, each "" if absent. isAge reports that one of
// them is an age. A window since an age ends now: what is dated ahead of the present is not in it.
func ParseWindow(since, until string, now time.Time) (w Window, isAge bool, err error) {
	if since == "" && until == "" {
		return w, false, nil
	}
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	var first time.Time
	if since != "" {
		t, age, err := ParseTime(since, now)
		if err != nil {
			return w, false, fmt.Errorf("since: %w", err)
		}
		first, from, to, isAge = t, FirstMicro(t), EndSince(age, now), age
	}
	if until != "" {
		t, age, err := ParseTime(until, now)
		if err != nil {
			return w, false, fmt.Errorf("until: %w", err)
		}
		to, isAge = FirstMicro(t), isAge || age
		if since != "" && !first.Before(t) {
			return w, false, fmt.Errorf("since (%s) must be earlier than until (%s)", since, until)
		}
	}
	if from >= to { // less than a microsecond
		from, to = math.MaxInt64, math.MaxInt64
	}
	return Window{from, to}, isAge, nil
}

// maxAhead is how far a record's time may be ahead of the present: clocks differ. A time further ahead is one that a client
// made up, and a record that has it would be the newest for years.
const maxAhead = 5 * time.Minute

// LatestAt returns the last microsecond whose records have a time, at a time: the last one of a whole second, because the dates
// of large sets are seconds.
func LatestAt(now time.Time) int64 {
	const second = 1_000_000
	return max(now.Add(maxAhead).Unix(), 0)*second + second - 1
}
